"""Kubernetes objects as every package knows them: pure, the base layer."""
