package host

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// maker is the process that made a box, told from all that have its number before and after it. It
// is part of a box's token, so that what is left of one can be told from what is in use.
type maker struct {
	pid   int
	start uint64 // the tick of the host's clock at which it began
	space uint64 // of process numbers: those of another container's say nothing here
}

// self is this process.
var self = sync.OnceValue(func() maker {
	start, _ := startOf(os.Getpid())
	return maker{os.Getpid(), start, processSpace()}
})

func processSpace() uint64 {
	var stat syscall.Stat_t
	if syscall.Stat("/proc/self/ns/pid", &stat) != nil {
		return 0
	}
	return stat.Ino
}

func (m maker) String() string {
	return strconv.Itoa(m.pid) + "-" + strconv.FormatUint(m.start, 36) + "-" + strconv.FormatUint(m.space, 36)
}

// tokens are what names of boxes, of their groups and of their directories end with.
var tokens = regexp.MustCompile(`(?:^|-)[a-z2-7]{10}-([0-9]+)-([0-9a-z]+)-([0-9a-z]+)$`)

// makerOf is who made what has that name; not known where there is no token in it.
func makerOf(name string) (m maker, known bool) {
	found := tokens.FindStringSubmatch(name)
	if found == nil {
		return maker{}, false
	}
	pid, first := strconv.Atoi(found[1])
	start, second := strconv.ParseUint(found[2], 36, 64)
	space, third := strconv.ParseUint(found[3], 36, 64)
	return maker{pid, start, space}, first == nil && second == nil && third == nil && pid > 1
}

// dead reports whether the process is known to have ended.
func (m maker) dead() bool {
	if m.space == 0 || m.space != self().space {
		return false
	}
	if syscall.Kill(m.pid, 0) == syscall.ESRCH {
		return true
	}
	start, err := startOf(m.pid)
	return err == nil && start != m.start
}

// abandoned reports whether a name is of what a process made that has ended.
func abandoned(name string) bool {
	m, known := makerOf(strings.TrimSpace(name))
	return known && m.dead()
}
