# SPDX-License-Identifier: MIT
#
# Completion of `reprise` for bash. The words are those that `reprise help` tells.
#
#     source <(reprise completion bash)
_reprise() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=
    COMPREPLY=()
    if ((COMP_CWORD == 1)) && [[ $word == -* ]]; then
        words="--help --version -V"
    elif ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $command == help ]]; }; then
        words=$(reprise --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')
        ((COMP_CWORD == 1)) && words+=" help"
    elif [[ $word == -* ]]; then
        words=$(reprise help "$command" 2>/dev/null |
            sed -nE 's/^ +(-[a-zA-Z], )?(--[a-z][a-z-]+).*/\2/p' | sort -u)
    elif ((COMP_CWORD == 2)) && [[ $command == bench ]]; then
        words="replay sweep"
    elif ((COMP_CWORD == 2)) && [[ $command == completion ]]; then
        words="bash zsh"
    fi
    if [[ $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
    fi
    return 0
}
complete -F _reprise reprise
