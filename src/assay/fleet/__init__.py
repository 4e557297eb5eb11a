"""Evaluation over many machines with Ray: replicas, managed servers, sweeps, watch, launch scripts."""
