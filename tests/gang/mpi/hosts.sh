#!/usr/bin/env bash
# Several hosts on one machine: network namespaces, joined by veth pairs and a bridge in a namespace of its own.
#   hosts.sh up N [PREFIX]     makes PREFIX1..PREFIXN (default gwhost), addresses 10.77.0.1.. , each with its own loopback
#   hosts.sh down [PREFIX]     removes them
#   hosts.sh agent HOST CMD... what mpirun takes in place of ssh: --mca plm_rsh_agent "hosts.sh agent", -launcher-exec for MPICH
# Needs root. A link is cut by: ip -n PREFIX2 link set eth0 down. A host dies by killing all that runs in it (ip netns pids).
# Abstract Unix sockets and loopback are per namespace, so such hosts share no memory.
set -euo pipefail
# Tests that run at the same time edit the one /etc/hosts.
locked() { exec 9>/tmp/gangway-hosts.lock; flock 9; }
case $1 in
  up)
    locked; n=$2 p=${3:-gwhost}; ip netns add ${p}net; ip -n ${p}net link add br0 type bridge; ip -n ${p}net link set br0 up
    for i in $(seq "$n"); do
      ip netns add "$p$i"; ip link add "${p:0:6}v$i" netns ${p}net type veth peer name eth0 netns "$p$i"
      ip -n ${p}net link set "${p:0:6}v$i" master br0 up; ip -n "$p$i" addr add 10.77.0.$i/24 dev eth0
      ip -n "$p$i" link set lo up; ip -n "$p$i" link set eth0 up
      grep -q "10.77.0.$i $p$i\$" /etc/hosts || echo "10.77.0.$i $p$i" >>/etc/hosts
    done ;;
  down) locked; p=${2:-gwhost}; for ns in $(ip netns list | awk '{print $1}' | grep "^$p"); do
      ip netns pids "$ns" | xargs -r kill -9; ip netns del "$ns"; done; kept=$(grep -v " $p[0-9]*\$" /etc/hosts || true); echo "$kept" >/etc/hosts ;;
  agent) shift; while [ "${1#-}" != "$1" ]; do shift; done; host=$1; shift; exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*" ;;
esac
