"""Our Kubernetes client runtime: requests, reflectors, work queues, election and events."""
