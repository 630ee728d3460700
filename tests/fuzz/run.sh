#!/usr/bin/env bash
# Builds the fuzz targets with clang's libFuzzer and AddressSanitizer and runs each for a bounded time, from golden
# files on. Exit code 0 only if nothing was found; a finding is kept in build/fuzz and named.
#   tests/fuzz/run.sh [SECONDS [TARGET]]      per target; default 20; all targets
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:-20} only=${2:-}
clang=$(command -v clang++-14 || command -v clang++) || { echo "tests/fuzz/run.sh: clang++ is needed" >&2; exit 2; }
compiler=("$clang")
if command -v ccache >/dev/null; then compiler=(ccache "$clang"); fi
out=build/fuzz
mkdir -p "$out/protocol"
protoc --cpp_out="$out/protocol" elastic/wire/holdfast.proto

# What the targets stand on, without HDF5.
sources=(checkpoint/sharded/{codec,digest,manifest,manifest_format,manifest_parse,reshard_plan,shard_index,shard_ranges,verify_plan}.cc
  checkpoint/safetensors_{header,json}.cc
  framework/chat/{chat_template,conversation,tokenizer_settings}.cc framework/jinja/*.cc
  framework/config/*.cc framework/s3/{s3_answer,s3_credentials,s3_page,xml_scanner}.cc
  framework/base/*.cc framework/storage/*.cc
  framework/data/{added_tokens,bpe,bpe_spec,bpe_tokenizer,byte_level,decompressor,document_reader,metaspace_tokenizer,nfc,regex,token_file,token_index,tokenizer,tokenizer_json}.cc
  models/families/*.cc models/*.cc framework/nn/*.cc framework/tensor/{memory_account,tensor}.cc
  framework/comm/gloo/{handshake,member_address}.cc elastic/wire/convert_{coordinator,fields,worker}.cc
  elastic/control/{messages,run_status,world}.cc "$out/protocol/elastic/wire/holdfast.pb.cc")
libraries=(spdlog absl_status absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_hash absl_time expat yaml-cpp libzstd zlib libpcre2-8 libutf8proc libxxhash protobuf libcrypto)
flags=(-std=c++20 -O1 -g1 -march=x86-64-v3 -I. "-isystem$out/protocol" -fno-omit-frame-pointer -fno-sanitize-recover=all)
read -ra found < <(pkg-config --cflags "${libraries[@]}")
flags+=("${found[@]}")

object_of() { echo "$out/$(tr / _ <<<"${1%.cc}").o"; }

# Objects are kept: a second run starts at once.
is_fresh() { # OBJECT
  local dependencies=${1%.o}.d files file
  [[ -e $1 && -e $dependencies ]] || return 1
  read -rd '' -a files < <(sed 's/^[^:]*://; s/\\$//' "$dependencies") || true # the whole file
  for file in "${files[@]}"; do
    [[ -e $file && ! $file -nt $1 ]] || return 1
  done
}
compile() { # SOURCE SANITIZERS
  local object
  object=$(object_of "$1")
  is_fresh "$object" || "${compiler[@]}" "${flags[@]}" "-fsanitize=$2" -MMD -c "$1" -o "$object"
  echo "$object"
}

# The files of a room are compiled together, as in the other builds.
declare -A rooms
for source in "${sources[@]}"; do rooms[$(dirname "$source")]+="#include \"$source\""$'\n'; done
mkdir -p "$out/rooms"
objects=() busy=0
for room in "${!rooms[@]}"; do
  source=$out/rooms/${room//\//_}.cc
  [[ $(cat "$source" 2>/dev/null) == "${rooms[$room]%$'\n'}" ]] || printf '%s' "${rooms[$room]}" >"$source"
  if ((busy++ >= $(nproc))); then wait -n; fi
  compile "$source" fuzzer-no-link,address,undefined >/dev/null &
  objects+=("$(object_of "$source")")
done
wait # what failed is not there to be linked

# fuzz TARGET SEED...: as many at a time as there are processors.
# A target that found nothing says so in a file: `wait -n` of bash 5.2 can return again for a job it has reported before.
started=0
: >"$out/passed"
fuzz() {
  [[ -z $only || $only == "$1" ]] || return 0
  if ((started++ >= $(nproc))); then wait -n || true; fi
  fuzz_one "$@" &
}
fuzz_one() {
  local target=$1 object
  shift
  object=$(compile "tests/fuzz/$target.cc" fuzzer,address,undefined)
  # shellcheck disable=SC2046
  "$clang" -fsanitize=fuzzer,address,undefined "$object" "${objects[@]}" $(pkg-config --libs "${libraries[@]}") -o "$out/$target"
  mkdir -p "$out/$target.corpus" "$out/$target.seeds"
  cp --backup=numbered "$@" "$out/$target.seeds/" # files of several versions have the same names
  # Inputs above the limits' test of memory or time are findings, too: 1 GB, 10 s.
  if ! "$out/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=20000 -print_final_stats=1 \
    -artifact_prefix="$out/$target." "$out/$target.corpus" "$out/$target.seeds" >"$out/$target.log" 2>&1; then
    tail -n 40 "$out/$target.log"
    echo "$target: found something; see $out/$target.log" >&2
    return 1
  fi
  sed -nE "s/^stat::(number_of_executed_units|new_units_added): */$target, $seconds s, \\1: /p" "$out/$target.log"
  echo "$target" >>"$out/passed"
}

mkdir -p "$out/seeds"
cp tests/golden/tiny_gpt2/config.json "$out/seeds/gpt2" # seeds of a target have names of their own
printf '{"added_tokens":[{"id":256,"content":"<|end|>","special":true}],"model":{"merges":["a a"],"vocab":{"aa":257}}}' >"$out/seeds/added.json"
printf '{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\\\s+(?!\\\\S)|\\\\p{L}+|(a+)+b"},"behavior":"Isolated"},{"type":"Digits"},{"type":"ByteLevel"}]}}' >"$out/seeds/split.json"
printf '{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"weight_map":{}}' >"$out/seeds/header"

# Of a file of three tokens: magic, version, bytes per token, tokens, digest, largest, bytes per block, block, own digest.
printf 'HFTOKIX1\1\0\0\0\2\0\0\0\3\0\0\0\0\0\0\0DIGEST..\151\0\0\0\0\0\20\0BLOCK...OWNDIGES' >"$out/seeds/index"

printf '{"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"added_tokens":[{"id":300,"content":"aa","normalized":true,"lstrip":true,"rstrip":true},{"id":301,"content":"of","single_word":true}]}' >"$out/seeds/replace.json"
printf '{"normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"decoder":{"type":"Fuse"}}' >"$out/seeds/metaspace.json"
printf '%s' '{% set ns = namespace(x=[]) %}{% for k, v in d.items() if v is not none %}{{ loop.index ~ k|upper|tojson(indent=2) }}{% else %}{% break %}{% endfor %}{% macro m(a, b=1) %}{{ a[::-1][1:b] * 3 }}{% endmacro %}{{ m("ab", b=2) }}{% generation %}{{ messages|selectattr("role", "equalto", "user")|map(attribute="content")|join(", ") }}{% endgeneration %}' >"$out/seeds/all.jinja"
printf '%s' '{"messages":[{"role":"system","content":[{"type":"text","text":"a"}]},{"role":"user","content":"b\u2581 é"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"2"},{"role":"assistant","content":"c"}],"tools":[{"type":"function"}],"chat_template_kwargs":{"n":1.5}}' >"$out/seeds/messages.jsonl"
printf '%s' '{"prompt":"a ","completion":"b"}' >"$out/seeds/texts.jsonl"

listing='<Contents><Key>run/a&amp;b</Key><Size>1</Size></Contents><Upload><Key>k</Key><UploadId>u</UploadId><Initiated>2010-11-10T20:48:33Z</Initiated></Upload><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><NextKeyMarker>k</NextKeyMarker>'
printf '%s' "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\">$listing</ListBucketResult>" >"$out/seeds/objects.xml"
printf '%s' "<ListMultipartUploadsResult>$listing</ListMultipartUploadsResult>" >"$out/seeds/uploads.xml"
printf '%s' '<Error><Code>NoSuchKey</Code><Message>a &#233; b</Message></Error>' >"$out/seeds/error.xml"
printf '[default]\naws_access_key_id=a\naws_secret_access_key = b\n' >"$out/seeds/credentials.ini"
printf 'pid=1 started=2 numbers=pid:[3] boot=b host=h\n' >"$out/seeds/process.ini"

# As workers and coordinators write them.
wire() { protoc --encode="holdfast.v1.$1" elastic/wire/holdfast.proto >"$out/seeds/$2.wire"; }
member='id { name: "w" incarnation: 7 } node: "n" host: "h" pid: 9 peak_flops: 1.5 probe_address: "10.0.0.3:4000"'
wire ToCoordinator join <<<"join { member { $member } claim { world { generation: 3 members { $member } placement: 1 } committed_step: 5 prepared_step: -1 } arithmetic: 'portable' build: 'b' config_keys { key: 'run.seed' value: 1 } }"
wire ToCoordinator vote <<<'vote { generation: 3 step: 6 loss_bits: 1 microbatches: 4 digest_chunks: 0 digest_chunks: 2 digests: 5 digests: 6 copy_chunks: 1 copies: 7 figures { name: "l" values: 0.5 is_list: true } }'
wire ToCoordinator failure <<<'failure { generation: 3 step: 6 phase: PHASE_REDUCE cause: "c" suspects: 1 }'
wire ToCoordinator saved <<<'saved { generation: 3 step: 6 data { name: "d" size: 8 digest: "0123456789abcdef" } index { name: "i" size: 4 digest: "0123456789abcdef" } chunks: 2 }'
wire FromCoordinator world <<<"world { world { generation: 4 members { $member } placement: 1 placement: 2 } }"
wire FromCoordinator peers <<<'peers { generation: 4 blobs: "a" blobs: "b" }'
wire FromCoordinator probe <<<'probe { round: 1 addresses: "10.0.0.3:4000" }'
wire StatusReply status <<<'state: "training" world_size: 1 workers { id { name: "w" } rank: 0 node: "n" } figures { run: "r" missing: "n" }'

# An address; a hello and a proof, which is no proof.
{ printf 'GENERATIKEY.....GRPS' && printf '\17\240\12\0\0\3'; } >"$out/seeds/address.peer"
printf '\0\0\0\0\1\0\0\0%064d' 1 >"$out/seeds/hello.peer"

printf "%s\n%s" "'s|'t|'re| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" "It's  12 bytes, and " >"$out/seeds/gpt2.regex"
printf "%s\n%s" '(?i:a|\b[\h&&\w]{1,3})(?=b)|(a+)+$' 'aaab ABab' >"$out/seeds/all.regex"

fuzz manifest_fuzz tests/golden/checkpoint_v*/step-*/manifest.json
fuzz shard_index_fuzz tests/golden/checkpoint_v*/step-*/*.index
fuzz config_json_fuzz tests/golden/tiny_llama/config.json tests/golden/exported_llama/{generation,tokenizer}_config.json "$out/seeds/gpt2"
fuzz tokenizer_json_fuzz "$out"/seeds/*.json
fuzz jinja_fuzz tests/framework/chat/golden/*/chat_template.jinja "$out"/seeds/*.jinja
fuzz conversation_fuzz "$out"/seeds/*.jsonl
fuzz safetensors_fuzz "$out"/seeds/header
fuzz token_index_fuzz "$out"/seeds/index
fuzz s3_answer_fuzz "$out"/seeds/*.xml "$out"/seeds/*.ini
fuzz wire_fuzz "$out"/seeds/*.wire
fuzz handshake_fuzz "$out"/seeds/*.peer
fuzz regex_fuzz "$out"/seeds/*.regex
fuzz config_yaml_fuzz configs/*.yaml
wait
((started > 0)) || { echo "there is no fuzz target '$only'" >&2; exit 2; }
(($(wc -l <"$out/passed") == started))
