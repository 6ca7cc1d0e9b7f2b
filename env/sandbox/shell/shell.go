// Package shell says in scripts of a POSIX shell what a box is asked to do. Drivers whose
// boxes are machines of others, which run a command and no more, have them run these.
package shell

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

// The exit codes by which scripts report a condition. Programs of Read and Write do not end with them by themselves;
// those of Command may, so that [Begun] has to be asked.
const (
	// NoDirectory: a command's directory is not there.
	NoDirectory = 98
	// Missing: the file is not there. NoFile: it is no regular file. Denied: it cannot be read or written.
	Missing = 97
	NoFile  = 96
	Denied  = 95
)

// Quote is a text as one word of a shell.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Directory is where a command runs.
func Directory(command sandbox.Command) string {
	if command.Dir == "" {
		return sandbox.Work
	}
	return command.Dir
}

// BegunLen is how many bytes the script of Command prints to standard error for [Begun], beyond what its program does.
const BegunLen = 1

// Begun reports whether the program of Command was begun, by what its script printed to standard error, and returns that
// as the program printed it. The sign comes before the program, which cannot take it back; a shell may warn before it.
func Begun(stderr []byte) (own []byte, begun bool) {
	at := bytes.IndexByte(stderr, 0)
	if at < 0 {
		return stderr, false
	}
	return slices.Delete(stderr, at, at+BegunLen), true
}

// Command is the script of a command with the environment of its box. Redirect, such as <"$in ", stands before
// what is run; "" for none. Its standard error is for [Begun].
func Command(box map[string]string, command sandbox.Command, redirect string) string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": sandbox.Work}
	maps.Copy(env, box)
	maps.Copy(env, command.Env)
	text := fmt.Sprintf("cd %s || exit %d\nprintf '\\000' >&2\nexec %senv -i", Quote(Directory(command)), NoDirectory, redirect)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		text += " " + Quote(name+"="+env[name])
	}
	for i, argument := range command.Argv {
		if i == 0 && strings.Contains(argument, "=") {
			text += " sh -c " + Quote(`exec "$0" "$@"`) // env would take it for a variable
		}
		text += " " + Quote(argument)
	}
	return text
}

// Read is the script that prints a file, one byte more than limit at most, so that a longer one is known.
func Read(name string, limit int64) string {
	return fmt.Sprintf("f=%s\n[ -e \"$f\" ] || exit %d\n[ -f \"$f\" ] || exit %d\nhead -c %d -- \"$f\" || exit %d", Quote(name), Missing, NoFile, limit+1, Denied)
}

// Write is the script that makes a file, and the directories above it, of the contents of from. That is the name of
// another file in the box, "" for the script's standard input.
func Write(name, from string, mode fs.FileMode) string {
	return fmt.Sprintf("f=%s\nmkdir -p -- %s || exit %d\n[ ! -e \"$f\" ] || [ -f \"$f\" ] || exit %d\ncat %s>\"$f\" || exit %d\nchmod %o -- \"$f\" || exit %d",
		Quote(name), Quote(path.Dir(name)), Denied, NoFile, strings.TrimLeft(from+" ", " "), Denied, mode.Perm(), Denied)
}

// Reset is the script that empties the box's directory and /tmp, of the user's own files alone where others have some there.
func Reset(own bool) string {
	whose := ""
	if own {
		whose = `-user "$(id -u)" `
	}
	return `for d in ` + sandbox.Work + ` /tmp; do chmod -R u+rwx "$d" 2>/dev/null; find "$d" -mindepth 1 -maxdepth 1 ` + whose + `-exec rm -rf -- {} + || exit 1; done`
}

// FileError is the error that the script of Read or Write ended with, nil for none.
func FileError(op string, id sandbox.ID, name string, exit int, limit sandbox.Class, stderr []byte) error {
	switch {
	case limit != "":
		return sandbox.Fail(sandbox.Lost, op, id, "%s did not end: %s", name, limit)
	case exit == Missing:
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	case exit == NoFile:
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	case exit != 0 && strings.Contains(string(stderr), "No space left"):
		return sandbox.Fail(sandbox.Disk, op, id, "%s: %s", name, stderr)
	case exit != 0:
		return sandbox.Fail(sandbox.Refused, op, id, "%s: %s", name, stderr)
	}
	return nil
}

// Stream is as much of what a script prints as may be kept, and how long it was.
type Stream struct {
	Text []byte
	// Limit is how much of it is kept, Seen how long it has been; in bytes.
	Limit, Seen int64
}

// Add takes more of it.
func (s *Stream) Add(text []byte) {
	s.Seen += int64(len(text))
	if room := s.Limit - int64(len(s.Text)); room > 0 {
		s.Text = append(s.Text, text[:min(int64(len(text)), room)]...)
	}
}

// Cut reports whether it was longer than is kept.
func (s *Stream) Cut() bool { return s.Seen > int64(len(s.Text)) }

// Floods reports whether it is 64 times as long as is kept: a program that prints so much is stopped.
func (s *Stream) Floods() bool { return s.Seen > 64*s.Limit }
