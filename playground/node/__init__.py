"""A real node in namespaces of its own: containerd, runc, kubelet and kube-proxy.

On the host, ``host.Node`` starts one process, the ``keeper``. It makes cgroups and namespaces, in
which ``inside`` starts everything else, and all of it ends with it.
"""
