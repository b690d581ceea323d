"""Decides where, when and in which cluster Kubernetes pods run."""
