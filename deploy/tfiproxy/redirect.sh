#!/bin/sh
# Sends a host's or pod's TCP connections through a transparent TFIProxy, and
# takes the rules away again. Needs nft and CAP_NET_ADMIN.
#
#   redirect.sh up   --uid UID [--inbound PORT] [--outbound PORT] [--pass PORT,PORT…]
#   redirect.sh down
#
# --uid is the user that TFIProxy runs as: its own connections pass. --inbound and
# --outbound are its transparent ports; without one that direction is left alone. Where
# there is IPv6 it must listen there too: inbound at [::], outbound at 127.0.0.1 and ::1.
# --pass are ports whose connections pass, in both directions (admin, ssh, …).
# Connections within the host's loopback addresses always pass.
set -eu

table=sequencefi

usage() {
	sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
	exit 64
}

down() {
	# Deleting what is not there is an error, so it is made first.
	nft -f - <<-END
		table inet $table
		delete table inet $table
	END
}

up() {
	uid= inbound= outbound= pass=
	while [ $# -gt 0 ]; do
		[ $# -ge 2 ] || usage
		case $1 in
		--uid) uid=$2 ;;
		--inbound) inbound=$2 ;;
		--outbound) outbound=$2 ;;
		--pass) pass=$2 ;;
		*) usage ;;
		esac
		shift 2
	done
	for number in "$uid" "${inbound:-1}" "${outbound:-1}"; do
		case $number in '' | *[!0-9]*) usage ;; esac
	done
	case $pass in *[!0-9,]*) usage ;; esac
	[ -n "$inbound$outbound" ] || usage

	down
	{
		echo "table inet $table {"
		if [ -n "$inbound" ]; then
			echo "chain in { type nat hook prerouting priority dstnat; policy accept;"
			[ -z "$pass" ] || echo "tcp dport { $pass } return"
			echo "iif lo return"
			echo "meta l4proto tcp redirect to :$inbound"; echo "}"
		fi
		if [ -n "$outbound" ]; then
			echo "chain out { type nat hook output priority -100; policy accept;"
			echo "meta skuid $uid return"
			[ -z "$pass" ] || echo "tcp dport { $pass } return"
			echo "ip daddr 127.0.0.0/8 return"
			echo "ip6 daddr ::1 return"
			echo "meta l4proto tcp redirect to :$outbound"; echo "}"
		fi
		echo "}"
	} | nft -f -
}

case ${1:-} in
up)
	shift
	up "$@"
	;;
down) [ $# -eq 1 ] && down || usage ;;
*) usage ;;
esac
