"""What every package knows of Kubernetes objects: pure, the base layer."""
