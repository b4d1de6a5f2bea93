"""`memqos completion`: shell code that completes commands, options and their values."""

import os
from typing import ClassVar, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

VARIABLE: Final = "_MEMQOS_COMPLETE"
"""Set by the shell code to ask this command what a line completes to."""

_BASH: Final = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=$'\\t' read -r type value; do
        case $type in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH: Final = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local line type value
    local -a found
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    for line in "${(@f)$(COMP_WORDS="${(j: :)words[1,CURRENT-1]} $IPREFIX$PREFIX" \\
        %(complete_var)s=zsh_complete ${words[1]} 2>/dev/null)}"; do
        type=${line%%%%$'\\t'*} value=${line#*$'\\t'}
        case $type in
            file) _files ;;
            dir) _files -/ ;;
            plain) found+=("$value") ;;
        esac
    done
    # -Q: as memqos spells it.
    (( $#found )) && compadd -Q -- $found
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH: Final = """\
function %(complete_func)s
    set -l option (commandline -ct | string match -r -- '^--[^=]*=')
    set -l token (commandline -ct | string replace -r -- '^--[^=]*=' '')
    for line in (env COMP_WORDS=(commandline -cp | string collect) \\
            %(complete_var)s=fish_complete (commandline -co)[1] 2>/dev/null)
        set -l parts (string split -m 1 \\t -- $line)
        switch $parts[1]
            case file
                string replace -r -- '^' "$option" (__fish_complete_path $token)
            case dir
                string replace -r -- '^' "$option" (__fish_complete_directories $token)
            case plain
                printf '%%s\\n' "$option$parts[2]"
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Completion(ShellComplete):
    """Takes the line as far as it is typed, and prints a type and a value a line."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type}\t{item.value}"


class _BashCompletion(_Completion):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Without what comes before `=` or `:`, which begin a word in bash."""
        *_, incomplete = self.get_completion_args()
        if incomplete.startswith("--"):
            incomplete = incomplete.partition("=")[2]
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        begin = 1 + max((incomplete.rfind(each) for each in "=:@" if each in breaks), default=-1)
        return f"{item.type}\t{item.value[begin:]}"


class _ZshCompletion(_Completion):
    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = _ZSH


class _FishCompletion(_Completion):
    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = _FISH


_SHELLS: Final[dict[str, type[_Completion]]] = {
    each.name: each for each in (_BashCompletion, _ZshCompletion, _FishCompletion)
}


def answer_shell(cli: click.Command, instruction: str) -> int:
    """Print what the line that the shell code passes on completes to; the exit code."""
    shell = _SHELLS.get(instruction.removesuffix("_complete"))
    if shell is None:
        return 1
    print(shell(cli, {}, "memqos", VARIABLE).complete())
    return 0


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print the code for shell completion in SHELL.

    \b
    bash:  memqos completion bash > /etc/bash_completion.d/memqos
    zsh:   memqos completion zsh > "${fpath[1]}/_memqos"
    fish:  memqos completion fish > ~/.config/fish/completions/memqos.fish

    It completes commands, options, files, releases, feature gates, rules and contexts; after -n
    and pod/ it reads names from the cluster, for two seconds at most.
    """
    cli = click.get_current_context().find_root().command
    click.echo(_SHELLS[shell](cli, {}, "memqos", VARIABLE).source(), nl=False)
