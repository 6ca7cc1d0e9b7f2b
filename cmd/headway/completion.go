package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// completionCmd prints a shell's completion script, or installs it. The script asks the program for candidates.
type completionCmd struct {
	Shell   string `arg:"" optional:"" help:"The shell: bash, zsh or fish (default with --install: that of SHELL)."`
	Install bool   `help:"Write the script where the shell finds it, and say which files were written."`
}

// Help says how to use the script; the command line prints it after the flags.
func (completionCmd) Help() string {
	return `headway completion --install                 once, for the shell of SHELL

Without --install the script is printed:
  bash: source <(headway completion bash)
  zsh: source <(headway completion zsh)
  fish: headway completion fish | source`
}

// scripts are the shells' scripts. Each hands the words up to the cursor to the program, which prints a candidate a line.
// None of them expands a candidate: the name of a directory may be anything.
var scripts = map[string]string{
	"bash": `_headway() {
  local word
  COMPREPLY=()
  while IFS= read -r word; do
    COMPREPLY+=("$(printf %q "$word")")
  done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case "${#COMPREPLY[@]} ${COMPREPLY[0]}" in "1 "*=) compopt -o nospace 2>/dev/null ;; esac
}
complete -o default -F _headway headway
`,
	"zsh": `#compdef headway
autoload -U +X compinit
(( $+functions[compdef] )) || compinit
_headway() {
  local found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("${(@)found:#}")
  local keys=("${(@M)found:#*=}")
  found=("${(@)found:#*=}")
  (( $#found + $#keys )) || { _files; return }
  (( $#found )) && compadd -a found
  (( $#keys )) && compadd -S '' -a keys
}
compdef _headway headway
`,
	"fish": `function __headway_complete
  set -l words (commandline -opc) (commandline -ct)
  $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c headway -a '(__headway_complete)'
`,
}

// Run prints the script, or installs it.
func (c *completionCmd) Run(a *app.Process) error {
	if c.Shell == "" && c.Install {
		c.Shell = filepath.Base(a.Getenv("SHELL"))
	}
	script, known := scripts[c.Shell]
	if !known {
		return failure.Usage("headway completion bash, zsh or fish; headway completion --help says how to use it", "%q is no shell with completion", c.Shell)
	}
	if !c.Install {
		_, err := fmt.Fprint(a.Stdout, script)
		return err
	}
	return install(a, c.Shell, script)
}

// place is where a shell reads a script: the file of the script and, where the shell has to be told of it, its file of
// settings with the line that does.
type place struct{ script, settings, line string }

// placeOf follows the directories that the environment names.
func placeOf(a *app.Process, shell string) (place, error) {
	home := a.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return place{}, failure.Usage("headway completion "+shell+" prints the script", "HOME %q names no directory to install in", home)
	}
	under := func(variable, fallback string) string {
		if dir := a.Getenv(variable); filepath.IsAbs(dir) {
			return dir
		}
		return filepath.Join(home, fallback)
	}
	switch shell {
	case "fish":
		return place{script: filepath.Join(under("XDG_CONFIG_HOME", ".config"), "fish", "completions", "headway.fish")}, nil
	case "zsh":
		script := filepath.Join(under("XDG_DATA_HOME", ".local/share"), "headway", "completion.zsh")
		return place{script, filepath.Join(under("ZDOTDIR", ""), ".zshrc"), sourced(script)}, nil
	}
	script := filepath.Join(under("XDG_DATA_HOME", ".local/share"), "headway", "completion.bash")
	return place{script, filepath.Join(home, ".bashrc"), sourced(script)}, nil
}

// sourced is the line that has a shell read a script, if it is there.
func sourced(script string) string {
	quoted := "'" + strings.ReplaceAll(script, "'", `'\''`) + "'"
	return "[ -r " + quoted + " ] && . " + quoted + " # headway completion"
}

// install writes a script, and the line that has the shell read it unless it is there. It says what it wrote.
func install(a *app.Process, shell, script string) error {
	at, err := placeOf(a, shell)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(at.script), 0o755); err != nil {
		return failure.Run("headway completion "+shell+" prints the script", "%w", err)
	}
	if err := replace.File(at.script, []byte(script), 0o644); err != nil {
		return failure.Run("headway completion "+shell+" prints the script", "%w", err)
	}
	fmt.Fprintf(a.Stdout, "wrote %s\n", at.script)
	if at.settings != "" {
		if err := appendLine(a, at.settings, at.line); err != nil {
			return failure.Run("add to it by hand: "+at.line, "%w", err)
		}
	}
	_, err = fmt.Fprintf(a.Stdout, "a new %s completes headway\n", shell)
	return err
}

// appendLine appends a line to a file of settings, unless the file has it.
func appendLine(a *app.Process, path, line string) (err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for have := range strings.Lines(string(text)) {
		if strings.TrimSpace(have) == line {
			_, err := fmt.Fprintf(a.Stdout, "%s reads it already\n", path)
			return err
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) // a link stays one
	if err != nil {
		return err
	}
	_, err = file.WriteString(line + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		_, err = fmt.Fprintf(a.Stdout, "added a line to %s\n", path)
	}
	return err
}
