// Package process runs rollout engines as programs on this machine. Each leads a process group, writes
// to a log of its own, and ends with this process, in every case. Programs that an engine has started
// itself, and those that a machine without a parent-death signal leaves behind, are ended at the next
// start. A mark in their environment finds them.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/fleet"
)

// Options of the driver.
type Options struct {
	// Command is a program and its arguments, in which {port}, {index}, {name} and {cell} stand for the engine's.
	Command []string
	// Names and Ports of the engines by their index. Cells are the processes that play on them, empty for this one; nil is that
	// for all.
	Names []string
	Ports []int
	Cells []string
	// CellCommand starts a cell before the first of its engines, and {cell} and {index} stand for its name and its number.
	// The cell ends with the last of them. Nil starts none.
	CellCommand []string
	// Dir is where logs go, one a name; it also tells this run's programs from those of another.
	Dir string
	// Grace is how long a program may take to end before it is killed; 0 means 10 s.
	Grace time.Duration
	// Logf is told which programs were ended at the start; nil for none.
	Logf func(format string, args ...any)
}

// Driver runs programs. It is safe for concurrent use.
type Driver struct {
	o    Options
	dir  string // absolute
	mu   sync.Mutex
	runs []*program // by engine, nil for none
	// cells are those of engines that were started and not given back.
	cells map[string]*cell
	// ending are the programs of cells that were given back, by the cell's name.
	ending map[string]*program
}

var _ fleet.Driver = (*Driver)(nil)

// logBytesMax is how long a log may be when a program starts: a longer one is put aside.
const logBytesMax = 64 << 20

// New makes the directory for logs and ends what an earlier process of this run has left behind.
func New(o Options) (*Driver, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, errors.New("the fleet's command names no program")
	}
	if len(o.Ports) != len(o.Names) {
		return nil, fmt.Errorf("%d ports for %d engines", len(o.Ports), len(o.Names))
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if o.Cells == nil {
		o.Cells = make([]string, len(o.Names))
	}
	d := &Driver{o: o, dir: dir, runs: make([]*program, len(o.Names)), cells: map[string]*cell{}, ending: map[string]*program{}}
	if left := sweep(mark(dir)); left > 0 {
		o.Logf("%d processes of engines that an earlier process of this run had started were still there: they are ended", left)
	}
	return d, nil
}

// mark is the entry of a program's environment that says whose it is.
func mark(dir string) string { return "HEADWAY_FLEET=" + dir }

// marksStay keeps Python's setproctitle from writing the name of a process over its environment, and the mark with it.
// vLLM and SGLang name the processes so that hold their GPUs.
const marksStay = "SPT_NOENV=1"

// FreePorts returns ports of this machine's loopback that no program listens on now.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// LookPath finds a command's program.
func LookPath(command []string) (path string, err error) {
	if len(command) == 0 || command[0] == "" {
		return "", errors.New("no program is named")
	}
	return exec.LookPath(command[0])
}

// words puts an engine's own into a text.
func (d *Driver) words(engine int, text string) string {
	return strings.NewReplacer("{port}", strconv.Itoa(d.o.Ports[engine]), "{index}", strconv.Itoa(engine), "{name}", d.o.Names[engine], "{cell}", d.o.Cells[engine]).Replace(text)
}

// Start starts an engine's program, unless it runs.
func (d *Driver) Start(ctx context.Context, engine int) error {
	if err := d.awaitCell(ctx, engine); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.startCell(engine); err != nil {
		return err
	}
	if p := d.runs[engine]; p != nil && p.ended() == nil {
		return nil
	}
	d.runs[engine] = nil
	if err := d.portFree(engine); err != nil {
		return err
	}
	p, err := d.start(d.o.Names[engine], d.o.Command, func(word string) string { return d.words(engine, word) })
	if err != nil {
		return err
	}
	d.runs[engine] = p
	return nil
}

// start starts a command that writes to the log of a name.
func (d *Driver) start(name string, command []string, words func(string) string) (*program, error) {
	log, err := d.openLog(name)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the program has its own
	argv := make([]string, len(command))
	for i, word := range command {
		argv[i] = words(word)
	}
	p, err := start(argv, append(os.Environ(), mark(d.dir), marksStay), log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return p, nil
}

// portFree refuses to start a program where another already listens: that one would be taken for it.
func (d *Driver) portFree(engine int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.o.Ports[engine])))
	if err != nil {
		return fmt.Errorf("port %d of engine %s cannot be listened on: %w; end what uses it, or choose another fleet.port", d.o.Ports[engine], d.o.Names[engine], err)
	}
	return l.Close()
}

// LogPath is where an engine's program writes to.
func (d *Driver) LogPath(engine int) string { return d.logOf(d.o.Names[engine]) }

func (d *Driver) logOf(name string) string { return filepath.Join(d.dir, name+".log") }

func (d *Driver) openLog(name string) (*os.File, error) {
	path := d.logOf(name)
	if info, err := os.Stat(path); err == nil && info.Size() > logBytesMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// Alive returns nil while the programs of an engine and of its cell run. Otherwise it tells how one ended and
// its last words.
func (d *Driver) Alive(_ context.Context, engine int) error {
	d.mu.Lock()
	p, err := d.runs[engine], d.cellAlive(engine)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if p == nil {
		return errors.New("its program was not started")
	}
	if err := p.ended(); err != nil {
		return fmt.Errorf("its program ended: %w%s", err, lastWords(d.LogPath(engine)))
	}
	return nil
}

// Stop ends an engine's program: it is asked to, and killed after the grace. So is that of its cell with the last of its
// engines.
func (d *Driver) Stop(ctx context.Context, engine int) error {
	d.mu.Lock()
	p, last := d.runs[engine], d.leaveCell(engine)
	d.mu.Unlock()
	var ending sync.WaitGroup
	var errs [2]error
	for i, p := range []*program{p, last} {
		if p != nil {
			ending.Go(func() { errs[i] = p.end(ctx, d.o.Grace) })
		}
	}
	ending.Wait()
	if errs[0] != nil {
		return errors.Join(errs[:]...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs[engine] == p {
		d.runs[engine] = nil
	}
	return errs[1]
}

// Close ends all programs at once.
func (d *Driver) Close() error {
	errs := make([]error, len(d.runs))
	var all sync.WaitGroup
	for i := range d.runs {
		all.Go(func() { errs[i] = d.Stop(context.Background(), i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
