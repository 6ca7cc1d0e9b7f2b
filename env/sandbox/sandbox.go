package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"time"
)

// ID names a box among all that a driver may meet on its host. It has letters, digits, '-' and '.',
// at most 64 of them, beginning with a letter. It begins with its owner and a '.', so that a run
// finds its own after a crash.
type ID string

// Limits bound what a box takes. 0 is the driver's default, which [Limits.WithDefaults] fills in;
// nothing is ever without a limit.
type Limits struct {
	// Memory of all processes together, in bytes. Default 512 MiB.
	Memory int64
	// CPUs is processor time a second, in seconds. Default 1.
	CPUs float64
	// Processes at once, threads counted. Default 128.
	Processes int
	// Disk is what may be written to files, in bytes; where it lies in memory it counts there, too.
	// Default 256 MiB.
	Disk int64
	// Files there may be. Default 50000.
	Files int
	// Output is how many bytes of each stream of a command are kept. The rest is read and thrown
	// away, and the command is ended once it has written 64 times as much. Default 1 MiB.
	Output int64
	// Time of a command. Default 60 s.
	Time time.Duration
}

// WithDefaults fills in what is 0.
func (l Limits) WithDefaults() Limits {
	orDefault(&l.Memory, 512<<20)
	orDefault(&l.CPUs, 1)
	orDefault(&l.Processes, 128)
	orDefault(&l.Disk, 256<<20)
	orDefault(&l.Files, 50000)
	orDefault(&l.Output, 1<<20)
	orDefault(&l.Time, time.Minute)
	return l
}

func orDefault[T comparable](v *T, otherwise T) {
	if *v == *new(T) {
		*v = otherwise
	}
}

// Spec says what a box is made of.
type Spec struct {
	// Root is the directory of a root file system, which boxes read and never write. Empty is the
	// host's own programs (/usr, /bin, /lib and the parts of /etc that they need), without its data.
	Root string
	// Image names what a backend that has images starts from; empty is the backend's own choice.
	Image string
	// Mounts are further directories of the host that boxes read and never write.
	Mounts []Mount
	// Env is the whole environment of commands beside PATH, HOME and LANG, and TMPDIR where /tmp is
	// not the box's own. Nothing of the host's is handed in.
	Env map[string]string
	// Network: the box reaches the host's network. Without it there is none but its own loopback.
	Network bool
	Limits  Limits
}

// Mount is a directory of the host as it is seen in a box.
type Mount struct{ Host, Box string }

// Work is the directory in every box that commands begin in and may write to; so is /tmp.
const Work = "/work"

// Command is run in a box to its end.
type Command struct {
	// Argv has the program and its arguments: no NUL in any, at least one, and together at most 128 KiB.
	Argv []string
	// Dir it begins in, absolute in the box; empty is Work.
	Dir string
	// Env adds to that of the Spec.
	Env map[string]string
	// Stdin it reads to its end.
	Stdin []byte
	// Time it may take, 0 or more than the box's limit for that.
	Time time.Duration
}

// Longest is how long a command may run in a box with these limits.
func (c Command) Longest(l Limits) time.Duration {
	if c.Time > 0 {
		return min(l.Time, c.Time)
	}
	return l.Time
}

// Result is what became of a command that ran.
type Result struct {
	// Exit is its code, 128 and the signal's number where one ended it.
	Exit int
	// Signal that ended it, by name (SIGKILL); empty for none.
	Signal string
	// Stdout and Stderr are the output as far as it is kept, of any bytes; Cut is set where there was
	// more.
	Stdout, Stderr       []byte
	StdoutCut, StderrCut bool
	// Limit is the limit of the box that the command met, empty for none: OutOfMemory, Timeout,
	// Processes, Disk or Output. A command that met one may have ended by itself all the same.
	Limit Class
	// Wall is how long it ran, CPU the time that its processes used. Memory is the most that they had
	// at once, in bytes. CPU and Memory are 0 where the driver cannot say.
	Wall, CPU time.Duration
	Memory    int64
}

// Box is one sandbox. It is used by one goroutine at a time, but for Close, which any may call at any
// time, more than once. A command that runs then ends with a Failure of class Lost.
type Box interface {
	ID() ID
	// Run runs a command and ends all that it left behind.
	Run(ctx context.Context, command Command) (Result, error)
	// Read returns a file's content. A link is followed as the box sees it, never as the host does.
	// A file that is missing, no plain file, or longer than limit bytes is an error that wraps
	// fs.ErrNotExist, fs.ErrInvalid or ErrTooLarge.
	Read(ctx context.Context, path string, limit int64) ([]byte, error)
	// Write makes a file, and the directories above it.
	Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error
	// Close ends all that runs in the box and removes what it has written.
	Close(ctx context.Context) error
}

// ErrTooLarge is wrapped by the error of reading a file beyond the limit that was given.
var ErrTooLarge = errors.New("the file is larger than may be read")

// Resetter is a Box that can be made as if it were new: no process, no file, no port of its last user. Reset is
// an error that wraps errors.ErrUnsupported where its network was used, which no reset takes back.
type Resetter interface {
	Reset(ctx context.Context) error
}

// Snapshotter is a Box whose files can be kept, and had again in another box of the same Spec.
type Snapshotter interface {
	// Snapshot returns what Restore takes: an archive of Work.
	Snapshot(ctx context.Context) ([]byte, error)
	Restore(ctx context.Context, snapshot []byte) error
}

// Boundary says what a driver keeps apart from the host and from other boxes. The zero Boundary is
// none: code in it has all rights of the user who runs headway.
type Boundary struct {
	// Files: it sees and writes only its own and those that Spec gives. Processes: it sees and
	// signals none but its own. Network: there is none unless Spec.Network. Kernel: a defect of the
	// host's kernel is not at once one of the boundary.
	Files, Processes, Network, Kernel bool
	// Limits that are enforced.
	Memory, CPU, ProcessCount, Disk, FileCount bool
	// Why says in words which part is missing and how to get it; it is empty where none is.
	Why string
}

// Secure reports whether untrusted code may run behind the boundary.
func (b Boundary) Secure() bool { return b.Files && b.Processes && b.Network }

// Driver makes boxes of one technology. It is safe for concurrent use.
type Driver interface {
	// Name as configs have it.
	Name() string
	// Check says whether boxes can be made here, without making one: an error that names what is
	// missing and how to get it. The Boundary is what holds here, on this host, for this user.
	Check(ctx context.Context) (Boundary, error)
	// Create makes a box and returns once commands can run in it.
	Create(ctx context.Context, id ID, spec Spec) (Box, error)
	// List names the boxes of an owner that are there, from every maker; also those half made.
	List(ctx context.Context, owner string) ([]ID, error)
	// Destroy ends a box by its name, with all that runs in it and all that it has written. One that
	// is not there is no error.
	Destroy(ctx context.Context, id ID) error
}

// Attacher is a Driver whose boxes outlive the process that made them, and can be used on by another.
type Attacher interface {
	// Attach returns a box that is there; one that is not is a Failure of class Lost.
	Attach(ctx context.Context, id ID, spec Spec) (Box, error)
}

// ModeOf is the mode of a task's file: one that begins with #! may be executed.
func ModeOf(content []byte) fs.FileMode {
	if bytes.HasPrefix(content, []byte("#!")) {
		return 0o755
	}
	return 0o644
}
