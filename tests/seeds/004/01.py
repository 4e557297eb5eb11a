class Task(ABC):
    def process_instances(self, instances: list[Instance] | None = None):
        """Unified scoring logic for all task types."""
        instances = instances or self._instances
        if not instances:
            return {}

        instances_by_doc = self.sort_instances(instances)
        sample_scores = defaultdict(list)

        # Handle custom process_results (backward compatibility)
        if callable(self.config.process_results):
            return self._process_with_custom_fn(instances_by_doc)

        # Standard path: Unified iteration
        # ALWAYS iterate: filter → doc → compute
        for filter_cfg in self._filters:
            for doc_id, doc_instances in instances_by_doc.items():
                # Create result object (task-type specific)
                result = self._create_result(doc_instances, filter_cfg.name)

                # Compute metrics for this filter
                for metric in filter_cfg.metric_list:
                    score = self._compute_metric(result, metric)
                    sample_scores[(metric.name, filter_cfg.name)].append(score)

        self._sample_scores = dict(sample_scores)
        return self._sample_scores

    @abstractmethod
    def _create_result(self, instances: list[Instance], filter_name: str):
        """Create GenResult or MCResult from instances.

        Subclasses implement this to return their specific result type.
        """
        raise NotImplementedError

    @abstractmethod
    def _compute_metric(self, result, metric: MetricConfig):
        """Compute a single metric from a result object.

        Subclasses implement this to handle their specific metric interface.
        """
        raise NotImplementedError
