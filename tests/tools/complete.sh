#!/usr/bin/env bash
# complete.sh QUANTA WORD... EXPECTED: completes the last WORD as bash does after `quanta`, with the
# script that QUANTA writes. Fails unless EXPECTED is offered, and for every WORD before it.
set -eu
quanta=$1
expected=${*: -1}
shift
words=("${@:1:$#-1}")
eval "$("$quanta" completion bash)"
complete -p quanta | grep -q -- '-F _quanta'
# Split where one argument holds several words.
read -ra COMP_WORDS <<<"quanta ${words[*]}"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_quanta
printf '%s\n' "${COMPREPLY[@]}"
for reply in "${COMPREPLY[@]}"; do
  case $reply in "${COMP_WORDS[COMP_CWORD]}"*) ;; *) exit 1 ;; esac
  if [ "$reply" = "$expected" ]; then found=1; fi
done
[ "${found-}" = 1 ]
