package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Name is the first argument that makes headway the agent.
const Name = "headway-sandbox-agent"

// version of the words. Client and agent are the same file, but for a file that was replaced under
// a running program.
const version = 1

// Places are the directories of a box as its agent sees them.
type Places struct {
	// Work, Tmp and Home are what commands may write to; Shm is /dev/shm, empty for none.
	Work, Tmp, Home, Shm string
	// More are further directories that may be written to.
	More []string
	// Named: the box's Work and /tmp have other names on the host, and paths are translated.
	Named bool
}

// Setup is what the agent does to itself before it runs anything.
type Setup struct {
	Places Places
	Limits sandbox.Limits
	// Env is the environment of all commands, whole. It travels apart: a value may be any bytes.
	Env map[string]string `json:"-"`
	// Mount makes a file system of Limits.Disk and Limits.Files in memory, with the places in it. It
	// needs CAP_SYS_ADMIN over the mount name space.
	Mount bool
	// Hide are files and directories that nothing is seen of afterwards, where they are there. It
	// needs what Mount needs.
	Hide []string
	// User and Group are taken on before anything runs, where they are not 0: the agent was started
	// as root, to mount.
	User, Group int
	// Confine drops all capabilities, forbids new privileges and filters system calls.
	Confine bool
	// NoCgroup sets limits of memory and processes for each process and user, where no control group does.
	NoCgroup bool
	// OwnKernel: the box has a kernel of its own, as gVisor's have, whose memory and processes are
	// the box's alone. No control group of the host sees them apart, so the agent watches them.
	OwnKernel bool
	// OwnNetwork: the box's network is its own, with nothing but loopback.
	OwnNetwork bool
}

// Held is what the agent found to hold.
type Held struct {
	// First: it is the first process of its name space. Seccomp: system calls are filtered.
	First, Seccomp bool
	// Caps is the set of capabilities that commands have.
	Caps uint64
}

const (
	opSetup    = "setup"
	opRun      = "run"
	opCancel   = "cancel"
	opRead     = "read"
	opWrite    = "write"
	opReset    = "reset"
	opSnapshot = "snapshot"
	opRestore  = "restore"
)

// request is a message to the agent; its data is standard input, a file or a snapshot. Bytes that
// may be any bytes are not strings: JSON would change them.
type request struct {
	Op      string        `json:"op"`
	Seq     uint64        `json:"seq"`
	Version int           `json:"version,omitempty"`
	Setup   *Setup        `json:"setup,omitempty"`
	Argv    [][]byte      `json:"argv,omitempty"`
	Env     [][]byte      `json:"env,omitempty"`
	Path    []byte        `json:"path,omitempty"`
	Time    time.Duration `json:"time,omitempty"`
	Mode    fs.FileMode   `json:"mode,omitempty"`
	Limit   int64         `json:"limit,omitempty"`
}

// answer is a message from the agent; its data is a file, a snapshot, or what a command wrote:
// first standard output, then standard error.
type answer struct {
	Seq     uint64          `json:"seq"`
	Version int             `json:"version,omitempty"`
	Held    *Held           `json:"held,omitempty"`
	Result  *sandbox.Result `json:"result,omitempty"`
	Stdout  int64           `json:"stdout,omitempty"`
	Stderr  int64           `json:"stderr,omitempty"`
	Fault   *fault          `json:"fault,omitempty"`
}

// fault is why a request could not be done, while the box is well.
type fault struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

func (f *fault) Error() string { return f.Text }

// Kinds of fault.
const (
	faultMissing  = "missing"
	faultInvalid  = "invalid"
	faultTooLarge = "too_large"
	faultDisk     = "disk"
	faultNoRoom   = "no_room" // the file system is full: the box's own, or the host's
	faultRefused  = "refused"
	faultBroken   = "broken" // the box cannot be used on
	faultUsed     = "used"   // the box cannot be made as if it were new
)

func faulty(kind, format string, args ...any) *fault {
	return &fault{kind, fmt.Sprintf(format, args...)}
}

// failure is the fault as the port has it. ownDisk: the box has a file system of its own, so that a
// full one is the doing of who uses the box; else it is the host's, and nobody in the box is to blame.
func (f *fault) failure(op string, id sandbox.ID, ownDisk bool) error {
	class, cause := sandbox.Refused, error(nil)
	if f.Kind == faultNoRoom && !ownDisk {
		return sandbox.Fail(sandbox.Quota, op, id, "the host's disk is full: %s: %w", f.Text, syscall.ENOSPC)
	}
	switch f.Kind {
	case faultUsed:
		return fmt.Errorf("sandbox: %s %s: %s: %w", op, id, f.Text, errors.ErrUnsupported)
	case faultMissing:
		cause = fs.ErrNotExist
	case faultInvalid:
		cause = fs.ErrInvalid
	case faultTooLarge:
		cause = sandbox.ErrTooLarge
	case faultDisk, faultNoRoom:
		class, cause = sandbox.Disk, syscall.ENOSPC
	case faultBroken:
		class = sandbox.Lost
	}
	if cause == nil {
		return sandbox.Fail(class, op, id, "%s", f.Text)
	}
	return sandbox.Fail(class, op, id, "%s: %w", f.Text, cause)
}
