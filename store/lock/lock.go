// Package lock keeps two processes from writing one directory: a file in it is held for
// as long as the process lives.
package lock

import "fmt"

// Error says that another process writes the run.
type Error struct {
	// Dir is the run directory, PID the process, empty if it has not said.
	Dir, PID string
	// File, if set, is the lock to delete when that process is known to be gone.
	File string
}

// Error names the process and the remedy.
func (e *Error) Error() string {
	who := "another process"
	if e.PID != "" {
		who = "process " + e.PID
	}
	text := fmt.Sprintf("store: %s is being written by %s: wait for it to end, or stop it", e.Dir, who)
	if e.File != "" {
		text += fmt.Sprintf("; if it is gone, delete %s", e.File)
	}
	return text
}
