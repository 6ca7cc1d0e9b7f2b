package origin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
)

// Origin is the command that a directory's run is of. The two that train keep a run in ways
// that the other one cannot go on with, and would break.
type Origin int

const (
	None       Origin = iota // no run: nothing has begun here
	Run                      // headway run
	Serve                    // headway serve
	Simulation               // headway simulate, which leaves nothing to go on with
)

// NatsDir is where a control plane without a cluster keeps its log, under the run directory.
var NatsDir = filepath.Join("state", "nats")

// lockFile is what headway run holds while it writes, under the run directory (package store/file).
var lockFile = filepath.Join("state", "lock")

// Of says which command made the run in dir, and writes nothing. A control plane says its
// address, and makes its server's files, before its log has a line. The command headway run takes its
// lock before there is a trace. Where a program of before this check wrote into the other's
// directory, the address tells: only a control plane that became the writer gives it. A copy without
// any of these is told by its trace.
func Of(dir string) (Origin, error) {
	here := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case here(AddressFile):
		return Serve, nil
	case here(lockFile) && (here(trace.FileName) || here(trace.PlainName)):
		return Run, nil
	case here(NatsDir):
		return Serve, nil
	}
	log, err := os.Open(trace.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return None, nil
	}
	if err != nil {
		return None, failure.Usage("see whether it can be read, or choose another directory", "%w", err)
	}
	defer log.Close()
	return originOfTrace(log)
}

// originOfTrace tells by what a trace begins with.
func originOfTrace(log *os.File) (Origin, error) {
	if info, err := log.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return None, nil
	}
	reader, err := trace.NewReader(log)
	if err != nil {
		return None, failure.Usage("choose another directory, or move the file away if it is not needed", "%s: %w", log.Name(), err)
	}
	if reader.Header.Source == "simulation" {
		return Simulation, nil
	}
	cfg, err := config.ParseRecorded("config of the trace of "+log.Name(), []byte(reader.Header.Config))
	if err != nil {
		return None, err
	}
	if reader.Header.Loop.TrainerAsks || TrainsItself(cfg.WithDefaults()) != nil {
		return Serve, nil
	}
	return Run, nil
}

// RefuseOthersRun refuses to resume what headway run did not make, before anything of it is opened.
func RefuseOthersRun(dir string) error {
	made, err := Of(dir)
	switch {
	case err != nil:
		return err
	case made == Serve:
		return failure.Usage(ServeHint(dir), "%s is a control plane's run: headway serve made it, and headway run would break its log", dir)
	case made == Simulation:
		return failure.Usage("headway view, replay and diagnose read it; start a run of its document with headway run FILE", "%s is a simulation: there is nothing to go on with", dir)
	}
	return nil
}

// ServeHint says how a control plane's run is gone on with.
func ServeHint(dir string) string {
	folder, name := split(dir)
	return fmt.Sprintf("headway serve FILE --dir %s --name %s goes on with it, FILE being its document", folder, name)
}

// split is the folder of all runs and the name of one, of its directory.
func split(dir string) (folder, name string) {
	if whole, err := filepath.Abs(dir); err == nil && filepath.Base(dir) != filepath.Base(whole) {
		dir = whole // such as "." or ".."
	}
	return filepath.Dir(filepath.Clean(dir)), filepath.Base(dir)
}

// RefuseOthersDirectory refuses to serve in a directory that holds no control plane's run, before
// anybody is told an address and anything is written. Its log is in a cluster, or in the directory.
func RefuseOthersDirectory(dir string, cluster bool) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return failure.Usage("choose another --name, or --dir for another folder", "%s is a file, and --name is to be a run's directory", dir)
	}
	made, err := Of(dir)
	switch {
	case err != nil:
		return err
	case made == Run:
		return failure.Usage("choose another --name, or go on with it by headway run --resume "+dir, "%s is a run of headway run: a control plane cannot go on with it", dir)
	case made == Simulation:
		return failure.Usage("choose another --name", "%s is a simulation: a control plane cannot go on with it", dir)
	case made == Serve && !cluster:
		return refuseLostLog(dir)
	}
	return nil
}

// refuseLostLog refuses a control plane's directory that has its trace, and not the log of which
// that is a copy: what began there anew could only spoil it.
func refuseLostLog(dir string) error {
	info, err := os.Stat(trace.Path(dir))
	if err != nil || info.Size() == 0 {
		return nil
	}
	log := filepath.Join(dir, NatsDir)
	if _, err := os.Stat(log); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failure.Usage("name the cluster that has the run's log (--nats), restore "+log+" from a copy, or choose another --name",
		"%s has the trace of a control plane's run, and not its log: there is no %s", dir, log)
}

// RefuseRunAsDocument refuses a directory where a config file is expected.
func RefuseRunAsDocument(path string) error {
	if info, err := os.Stat(path); path == "" || err != nil || !info.IsDir() {
		return nil
	}
	hint := "name a config file (YAML), or none for the defaults"
	switch made, _ := Of(path); made {
	case Run:
		hint = "headway run --resume " + path + " goes on with the run; a new one of its document: headway run " + filepath.Join(path, parts.ConfigFile)
	case Serve:
		hint = ServeHint(path)
	}
	return failure.Usage(hint, "%s is a directory, and a config file is expected", path)
}

// CheckName refuses a --name that is no directory's, or that a terminal or a log would not show as it is.
func CheckName(name string) error {
	hidden := !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
	if hidden || name != filepath.Base(name) || name == "." || name == ".." {
		return failure.Usage("choose a plain name, and --dir for the folder", "--name %q is not a name for a directory: want visible characters and spaces, without slashes", name)
	}
	return nil
}

// CheckFolder refuses a folder of all runs that is no folder.
func CheckFolder(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return failure.Usage("name a folder, which is made if it is missing, such as --dir runs", "--dir (store.dir) %s: %s is a file, and the folder of all runs is expected", dir, at)
		}
		if err == nil || at == filepath.Dir(at) {
			return nil
		}
	}
}

// TrainsItself refuses a document whose parts are in other processes.
func TrainsItself(cfg config.Config) error {
	if err := RefusePlan(cfg); err != nil {
		return err
	}
	for i, e := range cfg.Engines {
		if e.External() {
			problem := "is a server, and headway run trains only its own small model"
			if cfg.Tinker() {
				problem = "is a service that samples and trains, and headway run trains in this process"
			}
			return cfg.Refuse(fmt.Sprintf("engines.%d.kind", i), problem, "embedded, or headway serve with this document")
		}
	}
	if cfg.Trainer.Kind != "embedded" {
		return cfg.Refuse("trainer.kind", "is not run's: it trains itself", "embedded, or headway serve, which waits for your trainer")
	}
	if cfg.Environment.Kind != "embedded" {
		return cfg.Refuse("environment.kind", "is not run's: it plays itself", "embedded, or headway serve, which waits for your workers")
	}
	return nil
}

// RefusePlan refuses a document that plans for a model and GPUs with the built-in toy for engines. A run would train
// the toy in their stead.
func RefusePlan(cfg config.Config) error {
	key := cfg.PlanKey()
	if key == "" {
		return nil
	}
	return cfg.Refuse(key, "is of a plan, and the engines are the built-in toy, which would be trained instead",
		"engines of your own (keys engines, model.path, environment: headway init DIR --trainer=hf writes them), or --set hardware=null to train the toy")
}
