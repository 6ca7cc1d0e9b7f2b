package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// claimWait is how long a claim waits for a rollout: a stop is seen after it at the latest.
	claimWait   = 5 * time.Second
	claimsMost  = 1024
	busyPause   = 100 * time.Millisecond
	finishLimit = 120 * time.Second
	drainPause  = 20 * time.Millisecond
	// touchesMost bounds the touches that are under way at once. touchLimitLeast and touchLimitMost bound the time that
	// each waits for its answer.
	touchesMost     = 32
	touchLimitLeast = time.Second
	touchLimitMost  = 5 * time.Second
	// GraceDefault is how long running rollouts have after a stop.
	GraceDefault = 30 * time.Second
)

// WorkerOptions say what a worker plays.
type WorkerOptions struct {
	Options
	// Name is the worker's.
	Name string
	// Environments are played by their names.
	Environments map[string]Play
	// Concurrency is how many rollouts are played at once; 0 means 8.
	Concurrency int
	// Grace is how long running rollouts have after a stop; 0 means GraceDefault.
	Grace time.Duration
}

// Counts counts rollouts by their ends.
type Counts struct {
	// Finished have a result, Failed have none, and GivenUp were not wanted any more.
	Finished, Failed, GivenUp int
}

// Worker claims rollouts, plays them, keeps their claims and finishes them.
type Worker struct {
	options     WorkerOptions
	name        string
	names       []string
	concurrency int
	transport   *Transport
	stop        *event
	closing     *event
	free        chan struct{}
	failures    *failures

	mu       sync.Mutex
	cells    map[string]*Transport // by the address that claims have named
	running  []*played             // in the order of their claims
	deadline time.Duration         // of a claim
	counts   Counts
}

// played is a rollout that is being played, with the moment of its next touch.
type played struct {
	task *Task
	next time.Time
	// touching: a touch is under way.
	touching bool
}

// NewWorker returns a worker that has claimed nothing yet.
func NewWorker(options WorkerOptions) (*Worker, error) {
	if len(options.Environments) == 0 || options.Name == "" {
		return nil, refuse(Invalid, "a worker wants a name and at least one environment")
	}
	transport, err := NewTransport(options.Options)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		options: options, name: options.Name, names: slices.Sorted(maps.Keys(options.Environments)),
		concurrency: options.Concurrency, transport: transport, stop: newEvent(), closing: transport.stopped,
		deadline: time.Second, cells: map[string]*Transport{},
	}
	if w.concurrency < 1 {
		w.concurrency = 8
	}
	if w.options.Grace == 0 {
		w.options.Grace = GraceDefault
	}
	w.free = make(chan struct{}, w.concurrency)
	w.failures = &failures{concurrency: w.concurrency}
	return w, nil
}

// Stop has the worker claim no more. Rollouts that are being played may still end.
func (w *Worker) Stop() { w.stop.set() }

// Counts are those until now.
func (w *Worker) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Run plays until the run has ended, or Stop, and returns how many rollouts were finished. RunEnded is no error.
// Rollouts that still run after the grace are left behind.
func (w *Worker) Run(ctx context.Context) (int, error) {
	go w.touch(ctx)
	err := w.work(ctx)
	w.drain(ctx)
	w.closing.set()
	w.transport.Close()
	return w.Counts().Finished, err
}

func (w *Worker) work(ctx context.Context) error {
	for !w.stop.isSet() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !w.acquire(ctx, busyPause) {
			continue // all are busy; tools that hang do not keep it from seeing a stop
		}
		<-w.free
		if left := w.failures.left(); left > 0 {
			w.stop.wait(ctx, min(left, 500*time.Millisecond)) // a rollout that still runs may end well
			continue
		}
		claimed, err := w.claim(ctx)
		if IsKind(err, RunEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, task := range claimed {
			select {
			case w.free <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			go w.play(ctx, task)
		}
	}
	return nil
}

// acquire takes one of the places to play in, if one is free within d.
func (w *Worker) acquire(ctx context.Context, d time.Duration) bool {
	select {
	case w.free <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case w.free <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// claimed is a rollout as the server says it.
type claimed struct {
	ID          string  `json:"id"`
	Key         *string `json:"key"`
	Secret      *string `json:"secret"`
	URL         string  `json:"url"`
	Environment string  `json:"environment"`
	Prompt      uint64  `json:"prompt"`
	Level       int64   `json:"level"`
	Seed        uint64  `json:"seed"`
	Group       int64   `json:"group"`
	Sample      int64   `json:"sample"`
	Attempt     int64   `json:"attempt"`
	Evaluation  bool    `json:"evaluation"`
	DeadlineS   float64 `json:"deadline_s"`
}

func (w *Worker) claim(ctx context.Context) ([]*Task, error) {
	w.mu.Lock()
	want := max(w.concurrency-len(w.running), 1)
	w.mu.Unlock()
	message := map[string]any{
		"worker": w.name, "environments": w.names, "max": min(want, claimsMost), "wait_s": claimWait.Seconds(),
	}
	var reply struct {
		Rollouts []claimed `json:"rollouts"`
	}
	err := w.transport.post(ctx, call{
		path: "/api/v1/rollouts/claim", message: message, limit: claimWait + 30*time.Second, stop: w.stop,
	}, &reply)
	if err != nil {
		return nil, err
	}
	for _, one := range reply.Rollouts {
		if one.Key == nil || one.Secret == nil {
			return nil, refuse(Internal, "claims without key and secret: this control plane is older than this client")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	tasks := make([]*Task, 0, len(reply.Rollouts))
	for _, one := range reply.Rollouts {
		transport, err := w.playingAt(one.URL)
		if err != nil {
			return nil, err
		}
		task := &Task{
			ID: one.ID, Environment: one.Environment, Prompt: one.Prompt, Level: one.Level, Seed: one.Seed, Group: one.Group,
			Sample: one.Sample, Attempt: one.Attempt, Evaluation: one.Evaluation,
			worker: w, transport: transport, key: *one.Key, secret: *one.Secret, unwanted: newEvent(),
		}
		tasks = append(tasks, task)
		if one.DeadlineS != 0 {
			w.deadline = seconds(one.DeadlineS)
		}
		w.running = append(w.running, &played{task: task, next: now.Add(w.deadline / 4)})
	}
	return tasks, nil
}

// playingAt is where calls for a rollout go: to the address that its claim names, else where it was claimed. w.mu is held.
func (w *Worker) playingAt(url string) (*Transport, error) {
	if url == "" {
		return w.transport, nil
	}
	if found := w.cells[url]; found != nil {
		return found, nil
	}
	made, err := w.transport.to(url)
	if err == nil {
		w.cells[url] = made
	}
	return made, err
}

func (w *Worker) play(ctx context.Context, task *Task) {
	defer func() {
		w.mu.Lock()
		w.running = slices.DeleteFunc(w.running, func(one *played) bool { return one.task == task })
		w.mu.Unlock()
		<-w.free
	}()
	said := w.outcome(ctx, task)
	if said == nil || !task.Wanted() {
		w.count(func(c *Counts) { c.GivenUp++ })
		return
	}
	err := w.finish(ctx, task, said)
	if IsKind(err, Invalid, TooLarge) {
		said = w.failure(err, "environment")
		err = w.finish(ctx, task, said)
	}
	switch {
	case IsKind(err, Expired, NotFound, Conflict):
		w.count(func(c *Counts) { c.GivenUp++ })
	case err != nil:
		w.count(func(c *Counts) { c.Failed++ })
	case said["failed"] == nil:
		w.count(func(c *Counts) { c.Finished++ })
		w.failures.none()
	}
}

func (w *Worker) count(add func(*Counts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add(&w.counts)
}

// outcome plays a rollout: what its finish says, nil where nobody wants it any more.
func (w *Worker) outcome(ctx context.Context, task *Task) map[string]any {
	result, err := w.environment(ctx, task)
	var said map[string]any
	if err == nil {
		said, err = ending(result)
	}
	var failed *Failure
	var refused *Error
	switch {
	case err == nil:
		return said
	case errors.Is(err, ErrUnwanted) || IsKind(err, Expired) || ctx.Err() != nil:
		return nil
	case late(err):
		return w.failure(err, "timeout")
	case errors.As(err, &failed) && failed.Class == "data":
		return w.failure(err, "data")
	case w.closing.isSet() || !task.Wanted():
		return nil
	case errors.As(err, &refused) && refused.Status == 410 && w.lost(ctx, task):
		return nil
	}
	return w.failure(err, "environment")
}

func (w *Worker) environment(ctx context.Context, task *Task) (Result, error) {
	found := w.options.Environments[task.Environment]
	if found == nil && len(w.names) == 1 {
		found = w.options.Environments[w.names[0]]
	}
	if found == nil {
		return Result{}, refuse(Invalid, "no environment %q here", task.Environment)
	}
	return found(ctx, task)
}

// failure is what a finish says of a rollout that came to nothing.
func (w *Worker) failure(err error, reason string) map[string]any {
	w.count(func(c *Counts) { c.Failed++ })
	w.failures.add()
	said := map[string]any{"failed": cut(err.Error(), 1000), "reason": reason}
	var failed *Failure
	if errors.As(err, &failed) {
		said["class"] = failed.Class
	}
	return said
}

func (w *Worker) finish(ctx context.Context, task *Task, said map[string]any) error {
	return w.signed(ctx, task, call{path: "finish", message: said, limit: finishLimit}, &struct{}{})
}

// signed sends a call for a claim.
func (w *Worker) signed(ctx context.Context, task *Task, c call, into any) error {
	message := map[string]any{"worker": w.name, "secret": task.secret}
	maps.Copy(message, c.message)
	c.path, c.message = "/api/v1/rollouts/"+task.ID+"/"+c.path, message
	return task.transport.post(ctx, c, into)
}

// lost asks whether nobody wants a rollout any more. It is false also where nobody answers.
func (w *Worker) lost(ctx context.Context, task *Task) bool {
	return w.keep(ctx, task) == nil && !task.Wanted()
}

// keep keeps a claim, and learns whether it is wanted.
func (w *Worker) keep(ctx context.Context, task *Task) error {
	reply := struct {
		DeadlineS float64 `json:"deadline_s"`
		Wanted    bool    `json:"wanted"`
	}{Wanted: true}
	once := time.Duration(0)
	w.mu.Lock()
	limit := min(max(w.deadline/4, touchLimitLeast), touchLimitMost)
	w.mu.Unlock()
	err := w.signed(ctx, task, call{path: "touch", limit: limit, patience: &once}, &reply)
	if IsKind(err, Expired, NotFound, Conflict) {
		task.unwanted.set()
		return nil
	}
	if err != nil {
		return err
	}
	if reply.DeadlineS != 0 {
		w.mu.Lock()
		w.deadline = seconds(reply.DeadlineS)
		w.mu.Unlock()
	}
	if !reply.Wanted {
		task.unwanted.set()
	}
	return nil
}

// touch keeps the claims of the rollouts that are being played. A claim is touched at a quarter of its time, and none
// twice before all that are due. No claim waits for the answer to another's touch, as long as there is room.
func (w *Worker) touch(ctx context.Context) {
	room := make(chan struct{}, touchesMost)
	for {
		w.mu.Lock()
		deadline := w.deadline
		w.mu.Unlock()
		if w.closing.wait(ctx, min(max(deadline/8, 20*time.Millisecond), time.Second)) {
			return
		}
		for _, one := range w.due() {
			room <- struct{}{}
			go func() {
				w.touchOne(ctx, one)
				<-room
			}()
		}
	}
}

// touchOne touches a claim and says when it is due again: soon where the touch failed.
func (w *Worker) touchOne(ctx context.Context, one *played) {
	began := time.Now()
	share := time.Duration(4)
	if w.keep(ctx, one.task) != nil {
		share = 8
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	one.next, one.touching = began.Add(w.deadline/share), false
}

// due are the rollouts whose touch is due.
func (w *Worker) due() []*played {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []*played
	now := time.Now()
	for _, one := range w.running {
		if !one.touching && !one.next.After(now) && one.task.Wanted() {
			one.touching = true
			found = append(found, one)
		}
	}
	return found
}

func (w *Worker) drain(ctx context.Context) {
	until := time.Now().Add(w.options.Grace)
	for time.Now().Before(until) && ctx.Err() == nil {
		w.mu.Lock()
		left := len(w.running)
		w.mu.Unlock()
		if left == 0 {
			return
		}
		w.closing.wait(ctx, drainPause)
	}
}
