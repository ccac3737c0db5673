# lane.sh LANE PROGRAM LIBRARY BINDS [ARGUMENT...]
#
# Becomes PROGRAM in a root of its own, inside the private mount namespace in which it is started. What HAMi's device
# plugin and monitor open by fixed paths (HAMi 2.10.0, pkg/device-plugin and pkg/monitor) comes from the directory LANE;
# PROGRAM is /hami/<its name>, LIBRARY is /hami/nvml/libnvidia-ml.so.1. BINDS are directories, separated by colons,
# that are shown as they are. The mounts end with the namespace, and that with its last process.
lane=$1 program=$2 library=$3 binds=$4
shift 4
root=$lane/root

show() { # a file or directory, at a path of the new root
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    else
        mkdir -p "$root${2%/*}"
        : >"$root$2"
    fi
    mount --rbind "$1" "$root$2"
}

mount -t tmpfs -o mode=755 lane "$root"
for name in usr lib lib64 bin sbin etc dev proc; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$root/$name"
    elif [ -d "/$name" ]; then
        show "/$name" "/$name"
    fi
done
mount -t tmpfs lane "$root/usr/local"
show "$lane/device-plugins" /var/lib/kubelet/device-plugins
show "$lane/cdi" /var/run/cdi
show "$lane/config" /config
show "$lane/vgpu" /usr/local/vgpu
show "$lane/tmp" /tmp
show "$lane/pci" /sys/bus/pci/devices
show "$lane/node" /hami/node
show "$program" "/hami/${program##*/}"
show "$library" /hami/nvml/libnvidia-ml.so.1
IFS=:
for directory in $binds; do
    show "$directory" "$directory"
done
exec chroot "$root" "/hami/${program##*/}" "$@"
