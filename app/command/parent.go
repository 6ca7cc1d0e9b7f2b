package command

import (
	"io"
	"os"
	"syscall"
	"time"
)

// UntilEOF is the variable that ties a command to its standard input, which a program that starts the command holds
// open. A pipe ends however its holder ends, also by SIGKILL.
const UntilEOF = "HEADWAY_UNTIL_EOF"

// againEvery is the time between two signals: some commands end in order by the first, and at once by the next.
const againEvery = 2 * time.Second

// endWith has the process end as by SIGTERM when its standard input does. Programs that it starts are not told, since
// their standard input is another.
func endWith(stdin io.Reader) {
	if err := os.Unsetenv(UntilEOF); err != nil {
		return // the name is fixed, and sound
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // an error is an end, too
		for {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
			<-time.After(againEvery)
		}
	}()
}
