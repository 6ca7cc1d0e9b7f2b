package client

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"time"
)

var trainerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// leaseWait is how long one call waits for a batch.
const leaseWait = 20 * time.Second

// TrainerOptions say which trainer it is.
type TrainerOptions struct {
	Options
	// Name is the trainer's; a restarted one keeps it. Empty means "trainer".
	Name string
	// Rank of WorldSize data-parallel ranks; a WorldSize of 0 means 1.
	Rank, WorldSize int
	// StepMost ends the renewal of a lease after that long; 0 for never.
	StepMost time.Duration

	// Step is how long a step of Run takes.
	Step time.Duration
	// Channels are the side channels that Run fetches of every batch.
	Channels []string
	// Initial is the model that Run publishes as version 0 where nothing is published yet.
	Initial []Tensor
	// Directory is a folder on a disk that the server shares. Run writes versions there and publishes where they lie.
	// Empty means that Run sends the files along.
	Directory string
	// Acks has Run acknowledge steps without weights where no engine takes their version.
	Acks bool
	// Back is how many batches go by for each that Run hands back untrained; 0 for never.
	Back int
	// References has batches leased by reference, and Ahead has groups fetched before their lease.
	References, Ahead bool
	// Gather waits until all ranks have done their shares of a batch of rank 0's, as a sum over their gradients does. It
	// reports whether they have. With nil, Run waits for no other rank.
	Gather func(context.Context, *Batch) bool
}

// Trainer is a trainer's connection to a run. One goroutine at a time calls it; renewals run beside it.
type Trainer struct {
	options   TrainerOptions
	transport *Transport
	name      string
	rank      int
	ranks     int

	open *Batch
	// awaited renews the lease of a batch whose share is done, until rank 0 has published it.
	awaited *renewal
	// ahead: the weights have been trained on a batch that was not committed.
	ahead bool
	// after names the batch that this rank has finished last.
	after, afterAttempt int64
	// claimed: the version is what this rank expects rank 0 to have published.
	claimed      bool
	senderMissed bool
	groups       groups
	// gone names a batch of which a group was not there.
	gone        [2]int64
	loadVersion int64

	// Action says what to do first: train, load, republish or initialize.
	Action string
	// Version is that of the weights that the trainer holds; -1 for none.
	Version int64
	// Newest is the newest committed version, and Next the one that the next publish makes. Stored is the newest
	// that is known to have weights in the store; -1 for none.
	Newest, Next, Stored int64
	// RunName names the run; Steps is its number of train steps, 0 for no end.
	RunName string
	Steps   int
	// SyncEvery: versions that are multiples of it go to the engines.
	SyncEvery int64
	// distributed: engines take their weights from a sender.
	distributed bool
}

// NewTrainer returns a trainer that has said nothing yet: Connect comes first.
func NewTrainer(options TrainerOptions) (*Trainer, error) {
	if options.Name == "" {
		options.Name = "trainer"
	}
	options.WorldSize = max(options.WorldSize, 1)
	if !trainerName.MatchString(options.Name) {
		return nil, refuse(Invalid, "the trainer's name %q cannot be", options.Name)
	}
	if options.Rank < 0 || options.Rank >= options.WorldSize {
		return nil, refuse(Invalid, "rank %d of %d cannot be", options.Rank, options.WorldSize)
	}
	transport, err := NewTransport(options.Options)
	if err != nil {
		return nil, err
	}
	return &Trainer{
		options: options, transport: transport, name: options.Name, rank: options.Rank, ranks: options.WorldSize,
		Version: -1, Newest: -1, Stored: -1, loadVersion: -1, SyncEvery: 1,
	}, nil
}

// Transport is what the trainer sends its calls by.
func (t *Trainer) Transport() *Transport { return t.transport }

// Close stops renewing and frees the connections. An open batch goes back when its lease runs out.
func (t *Trainer) Close() {
	t.dropOpen(context.Background())
	t.transport.Close()
}

// Connect says that the trainer has started, or has gone back to a checkpoint of a version; -1 for none. A lease that
// this rank held goes back to the queue.
func (t *Trainer) Connect(ctx context.Context, version int64) error {
	t.dropOpen(ctx)
	message := map[string]any{"trainer": t.name, "version": version, "world_size": t.ranks}
	if t.rank > 0 {
		message["rank"] = t.rank
	}
	reply := struct {
		Action    string `json:"action"`
		Version   *int64 `json:"version"`
		Next      *int64 `json:"next"`
		Load      *int64 `json:"load"`
		Run       string `json:"run"`
		Steps     int    `json:"steps"`
		SyncEvery int64  `json:"sync_every"`
		Config    string `json:"config"`
	}{SyncEvery: 1}
	if err := t.transport.post(ctx, call{path: "/api/v1/trainers/connect", message: message}, &reply); err != nil {
		return err
	}
	if reply.Action == "" || reply.Version == nil || reply.Next == nil {
		return refuse(Internal, "the answer to connect does not say action, version and next")
	}
	t.Action, t.Newest, t.Next = reply.Action, *reply.Version, *reply.Next
	t.loadVersion = t.Newest
	if reply.Load != nil {
		t.loadVersion = *reply.Load
	}
	t.Stored, t.RunName, t.Steps, t.SyncEvery = t.loadVersion, reply.Run, reply.Steps, reply.SyncEvery
	t.distributed = takesFromSender(reply.Config)
	t.Version = version
	if t.Action == "train" {
		t.Version = t.Newest
	}
	t.ahead, t.after, t.afterAttempt, t.claimed = false, 0, 0, false
	return nil
}

// takesFromSender reports that a run's document has engines that take their weights from a sender.
func takesFromSender(document string) bool {
	var said struct {
		Engines []struct {
			Weights string `json:"weights"`
		} `json:"engines"`
	}
	if json.Unmarshal([]byte(document), &said) != nil {
		return false
	}
	for _, engine := range said.Engines {
		if engine.Weights == "distributed" {
			return true
		}
	}
	return false
}

// Load returns the weights to go on from: the newest version's. It is needed where the action is load, and after a
// batch was lost.
func (t *Trainer) Load(ctx context.Context) ([]Tensor, error) {
	if t.Newest < 0 {
		return nil, refuse(NotFound, "nothing is published yet: make version 0 and publish it")
	}
	if t.SyncEvery > 1 && t.Action == "train" { // the newest version may have no weights
		again := t.awaitWeights
		if t.rank == 0 {
			again = func(ctx context.Context) error { return t.Connect(ctx, -1) }
		}
		if err := again(ctx); err != nil {
			return nil, err
		}
	}
	if t.loadVersion < t.Newest && t.Version < t.Newest && !t.ahead {
		return t.loadSkipped(ctx)
	}
	found, err := t.Weights(ctx)
	if err == nil {
		t.Action = "train"
	}
	return found, err
}

// awaitWeights waits until rank 0 has made a version of the last one that has weights.
func (t *Trainer) awaitWeights(ctx context.Context) error {
	deadline, newest := time.Now().Add(max(t.transport.patience, 0)), t.Newest
	for time.Now().Before(deadline) && !t.transport.stopped.wait(ctx, 100*time.Millisecond) {
		state, err := t.transport.State(ctx, Latest)
		if err != nil {
			return err
		}
		newest = *state.Version
		if _, err := t.transport.State(ctx, newest+1); IsKind(err, NotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return refuse(Unavailable, "versions after %d have no weights, and rank 0 did not go on from that one", newest)
}

// loadSkipped goes on from the last version that has weights, as the next version.
func (t *Trainer) loadSkipped(ctx context.Context) ([]Tensor, error) {
	older := t.loadVersion
	_, found, err := t.transport.model(ctx, older)
	if err != nil {
		return nil, err
	}
	optimizer, err := t.transport.optimizer(ctx, older)
	if err != nil {
		return nil, err
	}
	if t.rank > 0 { // no batch comes before rank 0 has sent it
		t.holdRestored(t.Newest + 1)
	} else if _, err = t.Restore(ctx, older, found, optimizer); IsKind(err, RunEnded) {
		t.Version, t.Action, err = older, "train", nil // nothing follows from it
	}
	return found, err
}

// Weights reads the newest version's tensors, which the trainer then holds.
func (t *Trainer) Weights(ctx context.Context) ([]Tensor, error) {
	number, found, err := t.transport.model(ctx, Latest)
	if err != nil {
		return nil, err
	}
	if number < t.Version { // the batch that this rank has finished its share of is lost
		t.after, t.afterAttempt = 0, 0
		t.await(ctx, nil)
	}
	t.Version, t.Newest, t.Stored, t.Next = number, number, number, number+1
	t.ahead, t.claimed = false, false
	return found, nil
}

// Lease returns the next batch. It asks on and on, each time for 20 s. RunEnded says that there will be none. The
// renewals of the lease end with the context.
func (t *Trainer) Lease(ctx context.Context) (*Batch, error) {
	for {
		if t.open != nil && !t.open.done {
			return nil, refuse(Invalid, "batch %d was neither published, acked nor nacked", t.open.Lease)
		}
		found, err := t.ask(ctx, leaseWait)
		if err != nil || found != nil {
			return found, err
		}
	}
}

// Validation returns held-out prompts, answered by the newest served version. 0 prompts: as many as the run says.
func (t *Trainer) Validation(ctx context.Context, prompts int) (*Batch, error) {
	deadline := time.Now().Add(max(t.transport.patience, 0))
	for time.Now().Before(deadline) {
		message := map[string]any{"trainer": t.name, "wait_s": leaseWait.Seconds(), "kind": "validation"}
		if prompts > 0 {
			message["prompts"] = prompts
		}
		found, err := t.batch(ctx, message, leaseWait)
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, refuse(Unavailable, "no validation batch within %v", t.transport.patience)
}

// ask asks once for a batch to train on; nil where there is none yet.
func (t *Trainer) ask(ctx context.Context, wait time.Duration) (*Batch, error) {
	if t.ahead {
		return nil, refuse(Conflict, "the last batch was not committed: load before the next batch")
	}
	if t.Version < 0 && t.Action != "train" {
		return nil, refuse(Conflict, "this trainer has no weights of the run yet: %s first", t.Action)
	}
	message := map[string]any{"trainer": t.name, "wait_s": wait.Seconds()}
	if t.ranks > 1 {
		message["rank"], message["world_size"] = t.rank, t.ranks
	}
	if t.after != 0 {
		message["after"], message["after_attempt"] = t.after, t.afterAttempt
	}
	if t.options.References {
		message["form"] = "references"
	}
	if t.options.Ahead && !t.groups.began {
		t.groups.began = true
		go t.prefetch(ctx)
	}
	found, err := t.batch(ctx, message, wait)
	if err != nil || found == nil {
		return nil, err
	}
	if found.Lease == t.after && found.Attempt == t.afterAttempt {
		t.transport.stopped.wait(ctx, 50*time.Millisecond) // another rank's publish is on its way
		return nil, context.Cause(ctx)
	}
	found, err = t.take(ctx, found)
	if err != nil || !t.options.References {
		return found, err
	}
	return t.gather(ctx, found)
}

// batch asks once for a batch of any kind; nil where there is none yet.
func (t *Trainer) batch(ctx context.Context, message map[string]any, wait time.Duration) (*Batch, error) {
	answer, err := t.transport.do(ctx, call{
		method: "POST", path: "/api/v1/batches/lease", message: message, limit: wait + 30*time.Second,
	})
	var refused *Error
	if t.rank > 0 && errors.As(err, &refused) && refused.Kind == Conflict {
		if _, said := refused.Detail["next"]; said { // rank 0 has to publish what it went back to first
			t.transport.stopped.wait(ctx, 200*time.Millisecond)
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	if answer.status == 204 {
		t.lookForSender(ctx)
		return nil, nil
	}
	if message["form"] != nil {
		return byReference(answer.body)
	}
	return parse(answer.body)
}

// take begins to renew a batch, or refuses one that starts from another version than the trainer holds.
func (t *Trainer) take(ctx context.Context, found *Batch) (*Batch, error) {
	t.await(ctx, nil)
	if t.Version >= 0 {
		apart := found.Version != t.Version
		if !apart && t.claimed {
			back, err := t.wentBack(ctx)
			if err != nil {
				return nil, err
			}
			apart = back
		}
		if apart {
			t.ahead = t.ahead || t.rank > 0 // what a rank above 0 holds is nobody's version
			return nil, refuse(Conflict, "batch %d starts from version %d, and this trainer holds %d", found.Lease, found.Version, t.Version)
		}
	}
	t.claimed = false
	found.held = found.Version
	if t.Version >= 0 {
		found.held = t.Version
	}
	found.transport, found.trainer = t.transport, t.name
	message := map[string]any{"trainer": t.name, "attempt": found.Attempt, "rank": t.rank}
	found.Rank, found.WorldSize = t.rank, t.ranks
	found.renewal = keep(ctx, t.transport, found, message, t.options.StepMost)
	t.open = found
	return found, nil
}

// wentBack reports that the version that rank 0 was to publish is an earlier one's state.
func (t *Trainer) wentBack(ctx context.Context) (bool, error) {
	state, err := t.transport.State(ctx, t.Version)
	if IsKind(err, NotFound) { // it was pruned: all is well since
		return false, nil
	}
	return err == nil && state.Manifest.RestoredFrom != nil, err
}

// lookForSender asks once why there is no batch, where engines wait for weights from a sender.
func (t *Trainer) lookForSender(ctx context.Context) {
	if t.rank > 0 || t.senderMissed || !t.distributed {
		return
	}
	var said struct {
		Sender struct {
			State   string   `json:"state"`
			Waiting []string `json:"waiting"`
		} `json:"sender"`
	}
	once := time.Duration(0)
	if t.transport.get(ctx, call{path: "/api/v1/status", patience: &once}, &said) == nil {
		t.senderMissed = said.Sender.State != "serving" && len(said.Sender.Waiting) > 0
	}
}

// await keeps the lease of a batch that rank 0 has still to publish; nil: it has ended, or is lost.
func (t *Trainer) await(ctx context.Context, next *renewal) {
	before := t.awaited
	t.awaited = next
	if before != nil && before != next {
		before.stop(ctx)
	}
}

func (t *Trainer) dropOpen(ctx context.Context) {
	if t.open != nil && t.open.renewal != nil {
		t.open.renewal.stop(ctx)
	}
	t.open = nil
	t.await(ctx, nil)
}
