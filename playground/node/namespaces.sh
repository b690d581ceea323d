#!/bin/sh
# Gives the namespaces of node NUMBER their mounts, cgroups and network, then runs COMMAND:
# namespaces.sh NUMBER STATE COMMAND...
# The first node has the control plane and the bridge. The parent of others is in its namespaces.
set -eu
number=$1 node=node-$1 address=10.77.0.$1 state=$2 groups=/sys/fs/cgroup
shift 2
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
# The kubelet's sockets need a short path; what it mounts is shared with pods, and not with the folder itself.
mkdir -p /var/lib/kubelet "$state/kubelet"
mount --bind "$state/kubelet" /var/lib/kubelet
mount --make-private /var/lib/kubelet
mount --make-shared /var/lib/kubelet
hostname "$node"
# Pods resolve names only in these namespaces. resolv.conf may be a link into /run, which is empty now.
echo nameserver 10.77.0.1 > /run/resolv.conf
resolver=$(realpath -m /etc/resolv.conf)
mkdir -p "$(dirname "$resolver")"
touch "$resolver"
mount --bind /run/resolv.conf "$resolver"
if [ "$number" = 1 ] && [ -e $groups/cgroup.controllers ]; then
	umount --recursive --lazy $groups
	mount -t cgroup2 cgroup $groups
elif [ "$number" = 1 ]; then
	umount --recursive --lazy $groups
	# Without version 2 beside it: programs would expect its controllers there.
	mount -t tmpfs cgroup $groups
	for hierarchy in $(cut -d: -f2 /proc/self/cgroup); do
		mkdir "$groups/${hierarchy#name=}"
		mount -t cgroup -o "$(echo "$hierarchy" | sed s/^name=/none,name=/)" cgroup "$groups/${hierarchy#name=}"
	done
fi
if [ -e $groups/cgroup.controllers ]; then
	mkdir -p "$groups/$node"
	for group in "$groups" "$groups/$node"; do
		sed 's/[^ ]*/+&/g' "$group/cgroup.controllers" > "$group/cgroup.subtree_control"
	done
else
	for hierarchy in $groups/*/; do mkdir -p "$hierarchy$node"; done
fi
# The kubelet would set these of the whole machine: it finds what it wants to see.
for each in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	[ -e "/proc/sys/${each%=*}" ] || continue
	cover=/run/$(echo "${each%=*}" | tr / _)
	echo "${each#*=}" > "$cover"
	mount --bind "$cover" "/proc/sys/${each%=*}"
done
echo 1 > /proc/sys/net/ipv4/ip_forward
ip link set lo up
if [ "$number" = 1 ]; then
	ip link add eth0 type bridge
else
	ip link add eth0 type veth peer name "$node" netns $PPID
	nsenter --target $PPID --net sh -c "ip link set $node master eth0 up && ip route add 10.244.$number.0/24 via $address dev eth0 onlink"
fi
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via 10.77.0.1 dev eth0
exec "$@"
