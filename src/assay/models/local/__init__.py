"""Models in this process: the embedded one, transformers, vLLM; prefixes shared, texts generated in slots."""
