package pages

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Browser returns the command that opens a page, nil where none may be opened. Over ssh this machine's browser is not
// the reader's, and without a display there is none. BROWSER names another command, and none for no command.
// The system is as in runtime.GOOS.
func Browser(getenv func(string) string, system string) []string {
	for _, name := range []string{"SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"} {
		if getenv(name) != "" {
			return nil
		}
	}
	chosen, _, _ := strings.Cut(getenv("BROWSER"), ":") // a list, of which the first is preferred
	switch command := strings.Fields(chosen); {
	case len(command) == 1 && command[0] == "none":
		return nil
	case len(command) > 0:
		return command
	case system == "darwin":
		return []string{"open"}
	case getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != "":
		return []string{"xdg-open"}
	}
	return nil
}

// Open opens a link by a command of [Browser], and returns the function that takes what that needs away. The link has a
// token, and other users of the machine see the arguments of a command. So the browser gets a file that its owner alone
// can read, which leads to the link. The command goes on beside this process; its output is discarded.
func Open(command []string, link string) (remove func(), err error) {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headway-link-") // of mode 700
	if err != nil {
		return nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path := filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>headway</title><meta http-equiv=refresh content=\"0; url=%s\">\n",
		html.EscapeString(link))
	if err = os.WriteFile(path, []byte(page), 0o600); err == nil {
		started := exec.Command(program, withPage(command[1:], "file://"+path)...)
		if err = started.Start(); err == nil {
			go func() { _ = started.Wait() }() // its failure is seen: no page opens
			return remove, nil
		}
	}
	remove()
	return nil, err
}

// withPage puts a page into the arguments of a command: in the place of %s, else behind them.
func withPage(arguments []string, page string) (out []string) {
	placed := false
	for _, argument := range arguments {
		placed = placed || strings.Contains(argument, "%s")
		out = append(out, strings.ReplaceAll(argument, "%s", page))
	}
	if !placed {
		out = append(out, page)
	}
	return out
}
