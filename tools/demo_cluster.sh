#!/bin/sh
# What `make demo-cluster` shows: a run over two Ray nodes of which one is killed, and the same numbers as in one process. Linux.
set -e
bin=$1
out=${2:-demo-cluster-run}
folder=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/demo-XXXXXX")  # short: paths of Ray's sockets have a limit
head='' node='' run=''

bold() { printf '\n\033[1m%s\033[0m\n' "$*"; }
answers() { if [ -f "$1/responses.jsonl" ]; then sed 1d "$1/responses.jsonl" | wc -l | tr -d ' '; else echo 0; fi; }
end_node() { # all processes of a node's session, by id
	if [ -n "$1" ]; then kill -9 $(ps -o pid= -s "$1") 2>/dev/null || true; fi
}
replicas() { ps -o args= -s "$1" | grep -c "^ray::Replica" || true; }
leave() {
	if [ -n "$run" ]; then kill "$run" 2>/dev/null || true; fi
	end_node "$node"
	end_node "$head"
	rm -rf "$folder"
}
trap leave EXIT
trap 'exit 130' INT TERM

start_node() { # in a separate session; the settings keep it on this machine, quiet and small
	log=$1
	shift
	RAY_USAGE_STATS_ENABLED=0 setsid "$bin/ray" start "$@" --num-cpus 2 --object-store-memory 80000000 --block >"$log" 2>&1 &
	started=$!
}
wait_for_node() {
	tries=0
	until grep -q 'runtime started' "$1"; do
		tries=$((tries + 1))
		if [ $tries -gt 300 ]; then cat "$1"; echo "the Ray node does not start"; exit 1; fi
		sleep 0.2
	done
}

# a token of this demo, so that no one else on this machine can use its cluster
RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE RAY_AUTH_TOKEN
rm -rf "$out/plain" "$out/cluster"
mkdir -p "$out"

bold "Two machines, played by two Ray nodes on this one, with 2 CPUs each"
printf '$ ray start --head\n$ ray start --address …\n'
start_node "$folder/head.log" --head --port 0 --node-ip-address 127.77.0.1 --temp-dir "$folder/ray" --include-dashboard false
head=$started
wait_for_node "$folder/head.log"
address=$(sed -n "s/.*ray start --address='\([0-9.:]*\)'.*/\1/p" "$folder/head.log" | head -n 1)
start_node "$folder/node.log" --address "$address" --node-ip-address 127.77.0.2
node=$started
wait_for_node "$folder/node.log"
printf 'Both are up. The cluster is at %s.\n' "$address"

bold "First the run as always, in one process"
printf '$ assay run --tasks first_steps --output_path %s/plain\n' "$out"
"$bin/assay" run --tasks first_steps --output_path "$out/plain" >"$folder/plain.txt" 2>&1 || { cat "$folder/plain.txt"; exit 1; }
all=$(answers "$out/plain")
printf '%s requests were answered.\n' "$all"

bold "Now the same run on the cluster: one flag more, and four copies of the model share the requests"
printf '$ assay run --tasks first_steps --replicas 4 --ray %s --output_path %s/cluster\n' "$address" "$out"
"$bin/assay" run --tasks first_steps --replicas 4 --ray "$address" --output_path "$out/cluster" >"$folder/cluster.txt" 2>&1 &
run=$!
until [ "$(answers "$out/cluster")" -ge $((all * 2 / 5)) ]; do
	if ! kill -0 "$run" 2>/dev/null; then break; fi
	sleep 0.05
done
at=$(answers "$out/cluster")
dying=$(replicas "$node") staying=$(replicas "$head")
end_node "$node"
node=''
if [ "$dying" -eq 0 ] || [ "$staying" -eq 0 ]; then cat "$folder/cluster.txt"; echo "a node has no replica: $staying and $dying"; exit 1; fi
bold "A machine dies: kill -9 for one of the two nodes, with $dying of the $((dying + staying)) replicas"
printf '%s of %s answers were there. What the dead replicas had been asked goes to the %s others.\n' "$at" "$all" "$staying"
wait "$run" || { cat "$folder/cluster.txt"; exit 1; }
run=''
printf 'No one restarted anything. The run continued, and is done: %s answers.\n' "$(answers "$out/cluster")"

bold "Side by side: a is one process, b the cluster that lost a node"
"$bin/assay" compare "$out/plain" "$out/cluster"

bold "Equal to the byte?"
for file in "$out"/plain/samples/*.parquet; do cmp "$file" "$out/cluster/samples/${file##*/}"; done
printf 'samples: yes, all %s files with every prompt, answer and score\n' "$(ls "$out/plain/samples" | wc -l | tr -d ' ')"
for each in plain cluster; do sed 1d "$out/$each/responses.jsonl" | sort >"$folder/$each.journal"; done
cmp "$folder/plain.journal" "$folder/cluster.journal"
printf 'journals: yes, but for the order in which the answers came: none is lost, none is there twice\n'

bold "On your own cluster"
printf 'On each GPU machine: ray start --head, or ray start --address HEAD:6379. Then, on one of them:\n'
printf '  assay run --model hf --model_args pretrained=MODEL --tasks … --replicas auto --ray auto --output_path runs/mine\n'
printf 'The demo has ended its nodes; the two runs are in %s.\n' "$out"
