"""Scoring methods: metrics, the protocol of the published tables, test sets, baselines, throughput."""
