package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/headway-rl/headway/app"
)

// completionCmd prints a shell's completion script, generated from the same
// grammar the parser uses.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help says how to install the script.
func (completionCmd) Help() string {
	return `bash: source <(headway completion bash)
zsh: source <(headway completion zsh)
fish: headway completion fish | source`
}

// Run prints the script.
func (c *completionCmd) Run(application *app.Process, parser *kong.Kong) error {
	switch c.Shell {
	case "bash":
		bashCompletion(application.Stdout, parser.Model.Node)
	case "zsh":
		// zsh runs bash's script through its own compatibility layer.
		fmt.Fprintln(application.Stdout, "autoload -U +X compinit && compinit")
		fmt.Fprintln(application.Stdout, "autoload -U +X bashcompinit && bashcompinit")
		bashCompletion(application.Stdout, parser.Model.Node)
	case "fish":
		fishCompletion(application.Stdout, parser.Model.Node)
	}
	return nil
}

// longFlags lists a command's own flags as they are typed.
func longFlags(command *kong.Node) []string {
	names := []string{"--help"}
	for _, flag := range command.Flags {
		if !flag.Hidden && flag.Name != "help" {
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

// offered are the commands that the help lists.
func offered(root *kong.Node) (commands []*kong.Node) {
	for _, command := range root.Children {
		if !command.Hidden {
			commands = append(commands, command)
		}
	}
	return commands
}

// bashCompletion writes a script that completes the command's name first and
// then its flags, or files where no flag has been started.
func bashCompletion(w io.Writer, root *kong.Node) {
	var names []string
	for _, command := range offered(root) {
		names = append(names, command.Name)
	}
	fmt.Fprintln(w, "_headway() {")
	fmt.Fprintln(w, `  local word="${COMP_WORDS[COMP_CWORD]}" flags=""`)
	fmt.Fprintln(w, `  if [ "$COMP_CWORD" -eq 1 ]; then`)
	fmt.Fprintf(w, "    COMPREPLY=($(compgen -W %q -- \"$word\")); return\n", strings.Join(names, " "))
	fmt.Fprintln(w, "  fi")
	fmt.Fprintln(w, `  case "${COMP_WORDS[1]}" in`)
	for _, command := range offered(root) {
		fmt.Fprintf(w, "    %s) flags=%q ;;\n", command.Name, strings.Join(longFlags(command), " "))
	}
	fmt.Fprintln(w, "  esac")
	fmt.Fprintln(w, `  case "$word" in`)
	fmt.Fprintln(w, `    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;`)
	fmt.Fprintln(w, `    *) COMPREPLY=($(compgen -f -- "$word")) ;;`)
	fmt.Fprintln(w, "  esac")
	fmt.Fprintln(w, "}")
	fmt.Fprintln(w, "complete -o filenames -F _headway headway")
}

// fishCompletion writes fish's declarative form.
func fishCompletion(w io.Writer, root *kong.Node) {
	for _, command := range offered(root) {
		fmt.Fprintf(w, "complete -c headway -n __fish_use_subcommand -f -a %s -d %s\n",
			command.Name, fishQuote(command.Help))
		for _, flag := range command.Flags {
			if flag.Hidden {
				continue
			}
			fmt.Fprintf(w, "complete -c headway -n '__fish_seen_subcommand_from %s' -l %s -d %s\n",
				command.Name, flag.Name, fishQuote(flag.Help))
		}
	}
}

// fishQuote quotes text for fish.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
