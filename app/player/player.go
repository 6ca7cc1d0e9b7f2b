package player

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/openenv"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/env/sandbox/pool"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// tasksFile says in a run's directory which tasks it plays.
const tasksFile = "tasks.json"

// Player plays the rollouts of a control plane inside its process, with the tasks, sandboxes and verifier of its document.
type Player struct {
	cfg      config.Config
	tasks    *taskset.Set      // nil where the environment has the prompts
	verifier *verifier.Bounded // nil where the environment gives the rewards
	openenv  *openenv.Server   // nil for environment.kind tasks
	// Pool has the sandboxes, nil where nothing runs in one, and before Open.
	Pool          *pool.Pool
	log           *player.Log      // nil before open
	counts        *taskset.Counts  // nil before open, and where there are no tasks
	chooser       *taskset.Chooser // as counts
	shown         countsCache
	players       atomic.Pointer[player.Players]
	tally         player.Tally
	logf          func(format string, args ...any)
	now           func() time.Time
	spans         sink.Spans // nil where none are sent
	trouble       sync.Once
	countsTrouble sync.Once
	closed        bool
}

// New reads the tasks and makes the verifier, so that mistakes in either are said before anything has begun. It returns
// the document with what follows from its tasks, where it does not say it: the verifier, and the size of its prompt set.
// The player is nil where somebody else plays. Tasks that are stored by columns are read by columns, or refused by nil.
func New(cfg config.Config, columns taskset.Columns) (*Player, config.Config, error) {
	if !cfg.Environment.Played() {
		return nil, cfg, nil
	}
	s := &Player{}
	var err error
	if cfg.Environment.Tasks.File != "" {
		if s.tasks, err = parts.LoadTasks(cfg, columns); err == nil {
			cfg, err = parts.WithVerifier(cfg, s.tasks)
		}
		if err == nil {
			cfg, err = counted(cfg, s.tasks.Len())
		}
	}
	if err == nil && s.tasks != nil && cfg.Evaluate.Slots > 0 {
		cfg, err = evaluated(cfg, s.tasks.HeldOutLen())
	}
	if err == nil && cfg.Environment.Kind == "openenv" {
		s.openenv, err = parts.OpenenvOf(cfg.Environment.OpenEnv)
	}
	if err == nil && cfg.Environment.Verifier.Kind != "none" {
		s.verifier, err = parts.VerifierOf(cfg)
	}
	if err != nil {
		return nil, cfg, errors.Join(err, s.Close())
	}
	s.cfg = cfg
	return s, cfg, nil
}

// counted is a document with as many prompts as there are tasks to train on, or as it says, which may not be more. By that
// size every pass of the run plays each task once.
func counted(cfg config.Config, have int) (config.Config, error) {
	if cfg.Given("prompts.count") {
		if cfg.Prompts.Count > have {
			return cfg, cfg.Refuse("prompts.count", fmt.Sprintf("is more than the %d tasks of %s that are trained on", have, cfg.Environment.Tasks.File), fmt.Sprintf("at most %d, or leave it out", have))
		}
		return cfg, nil
	}
	changed, err := cfg.SetWith(config.Override{Flag: cfg.Environment.Tasks.File, Text: fmt.Sprintf("prompts.count=%d", have)})
	if err == nil {
		changed, err = changed.Resolve()
	}
	return changed, err
}

// evaluated is a document that evaluates at most as many prompts as tasks are held out.
func evaluated(cfg config.Config, have int) (config.Config, error) {
	switch {
	case have == 0:
		return cfg, cfg.Refuse("evaluate.slots", "has nothing to play: no task is held out", "environment.tasks.held_out or held_out_file, or leave it out")
	case cfg.Evaluate.Prompts > have && cfg.Given("evaluate.prompts"):
		return cfg, cfg.Refuse("evaluate.prompts", fmt.Sprintf("is more than the %d tasks that are held out", have), fmt.Sprintf("at most %d, or leave it out", have))
	}
	cfg.Evaluate.Prompts = min(cfg.Evaluate.Prompts, have)
	return cfg, nil
}

// Open opens the record of episodes and the sandboxes in a directory, which one process at a time has. The directory of the run
// says which tasks are played, by all of its processes. The operator is told by logf; spans is nil where none are sent.
func (s *Player) Open(ctx context.Context, cfg config.Config, dir, run string, now func() time.Time, logf func(format string, args ...any), spans sink.Spans) (err error) {
	s.cfg, s.logf, s.now, s.spans = cfg, logf, now, spans
	if s.tasks != nil {
		s.sayTasks()
	}
	if err := s.keepTasks(run); err != nil {
		return err
	}
	if s.log, err = player.OpenLog(dir); err != nil {
		return err
	}
	if err := s.openCounts(dir); err != nil {
		return err
	}
	if s.cfg.UsesSandbox() {
		s.Pool, err = parts.OpenPool(ctx, s.cfg, dir, parts.LongestTest(s.tasks, s.cfg), s.logf)
	}
	return err
}

// keepTasks notes which tasks a run plays, and refuses others: rollouts of one group would have two
// prompts.
func (s *Player) keepTasks(dir string) error {
	if s.tasks == nil {
		return nil
	}
	type note struct {
		File   string `json:"file"`
		Tasks  int    `json:"tasks"`
		Digest string `json:"digest"`
		// Instructions is empty in a note of an earlier release.
		Instructions string `json:"instructions,omitempty"`
	}
	now := note{s.cfg.Environment.Tasks.File, s.tasks.Len(), s.tasks.Digest(), s.tasks.Instructions()}
	path := filepath.Join(dir, tasksFile)
	text, err := os.ReadFile(path)
	if err == nil {
		var began note
		if err := json.Unmarshal(text, &began); err != nil {
			return failure.Run("remove it if the tasks are those that the run began with", "%s: %w", path, err)
		}
		if began.Digest != now.Digest || began.Instructions != "" && began.Instructions != now.Instructions {
			return failure.Usage("give it the tasks that it began with, or begin a run under another --name",
				"%s has changed since %s began, which had %d tasks and now has %d: rollouts of one group would have two prompts", now.File, dir, began.Tasks, now.Tasks)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if text, err = json.Marshal(now); err != nil {
		return err
	}
	return replace.File(path, append(text, '\n'), 0o600)
}

// Run plays until the context ends or nothing is left to play.
func (s *Player) Run(ctx context.Context, rollouts player.Rollouts, gateway http.Handler, clock func() int64) error {
	e := s.cfg.Environment
	players, err := player.New(player.Options{
		Rollouts: rollouts, Gateway: gateway, Name: parts.PlayerName, Workers: e.Players + s.cfg.Evaluate.Slots, Task: s.task, World: s.world, Verifier: s.verifierPort(),
		TurnsMax: e.TurnsMax, Timeout: config.Seconds(e.TimeoutS), FailOn: parts.FailOn(e.OnLimit), Clock: clock, Record: s.record, Ended: s.ended, Logf: s.logf,
	})
	if err != nil {
		return err
	}
	s.players.Store(players)
	players.Run(ctx)
	return nil
}

// verifierPort is the verifier as a port, which is nil where the world gives the rewards.
func (s *Player) verifierPort() verifier.Verifier {
	switch {
	case s.verifier != nil:
		return s.verifier
	case s.cfg.Environment.Kind == "tasks":
		return verifier.None{}
	}
	return nil
}

// task is the task of a claim.
func (s *Player) task(claim protocol.Claim) (*taskset.Task, error) {
	if s.tasks == nil {
		return &taskset.Task{ID: fmt.Sprintf("prompt-%d", claim.Prompt)}, nil
	}
	prompt := int64(claim.Prompt)
	if claim.Evaluation {
		if prompt < 1 || prompt > int64(s.tasks.HeldOutLen()) {
			return nil, fmt.Errorf("there is no held-out task with number %d", claim.Prompt)
		}
		return s.tasks.HeldOut(int(prompt - 1)), nil
	}
	if prompt < 1 || claim.Level < 0 || claim.Level > 0 && s.tasks.LevelLen(int(claim.Level)) == 0 {
		return nil, fmt.Errorf("there is no task with number %d at level %d", claim.Prompt, claim.Level)
	}
	return s.chooser.At(int64(claim.Group), prompt, int(claim.Level))
}

// world is what a rollout acts on, nil for nothing.
func (s *Player) world(ctx context.Context, claim protocol.Claim, _ *taskset.Task) (episode.World, error) {
	switch {
	case s.openenv != nil:
		return s.openenv.World(claim.ID, worldSeed(claim)), nil
	case s.Pool == nil:
		return nil, nil
	}
	lease, err := s.Pool.Lease(ctx, claim.ID)
	if err != nil {
		return nil, err
	}
	return episode.NewSandboxed(lease, episode.SandboxedOptions{Tools: append([]string{}, s.cfg.Environment.Tools...), ToolTime: config.Seconds(s.cfg.Sandbox.TimeoutS)})
}

// worldSeed is a function of the run's seed and the prompt, the same for all rollouts of a group. It
// has 31 bits, which every environment can seed itself with. Prompts of an evaluation have seeds of their own.
func worldSeed(claim protocol.Claim) int64 {
	prompt := claim.Prompt
	if claim.Evaluation {
		prompt = ^prompt
	}
	mixed := (claim.Seed + prompt*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return int64(mixed >> 33)
}

// record counts an episode and notes it down. That a record is lost is said once: it costs a line of a
// report, and no rollout.
func (s *Player) record(r episode.Record) {
	s.tally.Add(r)
	if s.spans != nil {
		s.spans.Episode(r)
	}
	if err := s.log.Append(r); err != nil {
		s.trouble.Do(func() { s.logf("%s: %v; records of episodes are missing from here on", player.LogName, err) })
	}
}

// Close ends what is open. A second call does nothing.
func (s *Player) Close() error {
	if s == nil || s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.Pool != nil {
		ctx, cancel := context.WithTimeout(context.Background(), parts.PoolCloseLimit)
		defer cancel()
		errs = append(errs, s.Pool.Close(ctx))
	}
	if s.verifier != nil {
		errs = append(errs, s.verifier.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.counts != nil {
		errs = append(errs, s.counts.Close())
	}
	return errors.Join(errs...)
}
