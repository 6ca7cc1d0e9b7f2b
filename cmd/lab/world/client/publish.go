package client

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	modelFile     = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
	publishLimit  = 600 * time.Second
	// reasonMost is the server's bound on a reason, in bytes.
	reasonMost = 4096
)

// Publish sends a model as the version that training a batch made, and acknowledges the batch with it. Without a batch
// it makes version 0. Ranks above 0 send nothing. The optimizer's tensors may be none.
func (t *Trainer) Publish(ctx context.Context, batch *Batch, model, optimizer []Tensor) (int64, error) {
	if len(model) == 0 {
		return 0, refuse(Invalid, "the model is empty: nothing would be served")
	}
	files := []named{{modelFile, encode(model, nil)}}
	if len(optimizer) > 0 {
		files = append(files, named{optimizerFile, encode(optimizer, nil)})
	}
	return t.publish(ctx, batch, func(manifest map[string]any) (int64, error) { return t.upload(ctx, manifest, files) })
}

// PublishDirectory publishes files that lie on a disk that the server shares: *.safetensors, and an adapter's
// adapter_config.json.
func (t *Trainer) PublishDirectory(ctx context.Context, batch *Batch, directory string) (int64, error) {
	return t.publish(ctx, batch, func(manifest map[string]any) (int64, error) {
		whole, files, err := lying(directory)
		if err != nil {
			return 0, err
		}
		manifest["directory"], manifest["files"] = whole, files
		return t.send(ctx, call{message: manifest, limit: copyLimit})
	})
}

// lying lists the files of a directory that are published.
func lying(directory string) (string, []map[string]any, error) {
	whole, err := filepath.Abs(directory)
	if err != nil {
		return "", nil, err
	}
	entries, _ := os.ReadDir(whole)
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".safetensors") {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return "", nil, refuse(Invalid, "%s has no *.safetensors to publish", whole)
	}
	slices.Sort(names)
	if info, err := os.Stat(filepath.Join(whole, "adapter_config.json")); err == nil && info.Mode().IsRegular() {
		names = append(names, info.Name())
	}
	files := make([]map[string]any, 0, len(names))
	for _, name := range names {
		info, err := os.Stat(filepath.Join(whole, name))
		if err != nil {
			return "", nil, err
		}
		files = append(files, map[string]any{"name": name, "size": info.Size()})
	}
	return whole, files, nil
}

func (t *Trainer) publish(ctx context.Context, batch *Batch, send func(map[string]any) (int64, error)) (int64, error) {
	if batch == nil && t.Next != 0 {
		return 0, refuse(Invalid, "publish wants the batch that version %d was trained on; to go back, restore", t.Next)
	}
	version := int64(0)
	if batch != nil {
		version = batch.Version + 1
	}
	if err := checkOpen(batch); err != nil {
		return 0, err
	}
	if t.rank > 0 {
		if batch != nil {
			t.end(ctx, batch, &version)
		} else {
			t.Version, t.Newest, t.Next, t.Action, t.claimed = 0, 0, 1, "train", true
		}
		return version, nil
	}
	committed, err := send(t.manifest(version, batch))
	if err != nil {
		if IsKind(err, Expired, Conflict) {
			t.lose(ctx, batch)
		}
		return 0, err
	}
	t.Stored = committed
	if batch == nil {
		t.Version, t.Newest, t.Next, t.Action = committed, committed, committed+1, "train"
	} else {
		t.end(ctx, batch, &committed)
	}
	return committed, nil
}

// Restore goes on from an earlier version's state, which the trainer holds: it publishes it as the next version. All
// ranks call it. Rank 0 sends, and the others wait until it has.
func (t *Trainer) Restore(ctx context.Context, version int64, model, optimizer []Tensor) (int64, error) {
	if t.rank > 0 {
		made, err := t.awaitRestored(ctx, version)
		if err == nil {
			t.holdRestored(made)
		}
		return made, err
	}
	if len(model) == 0 {
		return 0, refuse(Invalid, "the model is empty: nothing would be served")
	}
	manifest := t.manifest(t.Newest+1, nil)
	manifest["restored_from"] = version
	files := []named{{modelFile, encode(model, nil)}}
	if len(optimizer) > 0 {
		files = append(files, named{optimizerFile, encode(optimizer, nil)})
	}
	made, err := t.upload(ctx, manifest, files)
	if err == nil {
		t.holdRestored(made)
	}
	return made, err
}

// holdRestored holds the version that was made of an earlier one's state.
func (t *Trainer) holdRestored(made int64) {
	t.Version, t.Newest, t.Stored, t.Next, t.Action = made, made, made, made+1, "train"
	t.ahead, t.claimed = false, false
}

// awaitRestored waits until rank 0 has made a version of an earlier one's state. Where this rank connected after that,
// it is the newest.
func (t *Trainer) awaitRestored(ctx context.Context, older int64) (int64, error) {
	deadline, after := time.Now().Add(max(t.transport.patience, 0)), t.Newest+1
	first := t.Newest
	if t.Version == t.Newest {
		first = after
	}
	for time.Now().Before(deadline) && !t.transport.stopped.wait(ctx, 100*time.Millisecond) {
		for made := first; made <= after; made++ {
			state, err := t.transport.State(ctx, made)
			switch from := state.Manifest.RestoredFrom; {
			case IsKind(err, NotFound):
			case err != nil:
				return 0, err
			case from != nil && *from == older:
				return made, nil
			case made == after:
				return 0, refuse(Conflict, "version %d is not made of version %d", made, older)
			}
		}
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, refuse(Unavailable, "rank 0 did not go back to version %d", older)
}

// Ack ends a train step without weights, where its version is not one that goes to the engines.
func (t *Trainer) Ack(ctx context.Context, batch *Batch) (int64, error) {
	if err := checkOpen(batch); err != nil {
		return 0, err
	}
	version := batch.Version + 1
	if t.rank > 0 {
		t.end(ctx, batch, &version)
		return version, nil
	}
	if version%t.SyncEvery == 0 {
		return 0, refuse(Conflict, "version %d goes to the engines, which need its weights: publish the batch instead", version)
	}
	forward, step := stamps(batch)
	message := map[string]any{
		"trainer": t.name, "attempt": batch.Attempt, "forward_version": forward, "step_version": step,
	}
	committed, err := t.send(ctx, call{path: fmt.Sprintf("/api/v1/batches/%d/ack", batch.Lease), message: message, limit: callLimit})
	if err != nil {
		if IsKind(err, Expired, Conflict) {
			t.lose(ctx, batch)
		}
		return 0, err
	}
	t.end(ctx, batch, &committed)
	return committed, nil
}

// Nack gives a batch back untrained. Failed counts it as a failed attempt of the step. A batch that was lost
// meanwhile is no error: it is back already.
func (t *Trainer) Nack(ctx context.Context, batch *Batch, reason string, failed bool) error {
	if err := checkOpen(batch); err != nil {
		return err
	}
	if err := t.giveUp(ctx, batch, reason, failed, nil); err != nil && !IsKind(err, Expired) {
		return err
	}
	t.end(ctx, batch, nil)
	return nil
}

func (t *Trainer) giveUp(ctx context.Context, batch *Batch, reason string, failed bool, patience *time.Duration) error {
	reason = strings.ToValidUTF8(strings.ToValidUTF8(reason, "?")[:min(len(reason), reasonMost)], "")
	message := map[string]any{"trainer": t.name, "attempt": batch.Attempt, "reason": reason, "failed": failed}
	path := fmt.Sprintf("/api/v1/batches/%d/nack", batch.Lease)
	return t.transport.post(ctx, call{path: path, message: message, patience: patience}, &struct{}{})
}

// giveBack gives the open batch back when a loop is left.
func (t *Trainer) giveBack(ctx context.Context) {
	left := t.open
	t.open = nil
	if left == nil || left.done {
		return
	}
	if left.renewal != nil {
		left.renewal.stop(ctx)
	}
	patience := time.Second
	_ = t.giveUp(ctx, left, "the trainer left its loop", false, &patience) // else its lease runs out
}

// end notes that a batch is over; committed is the version that it made, nil for none.
func (t *Trainer) end(ctx context.Context, done *Batch, committed *int64) {
	done.done = true
	t.groups.drop(done.references)
	if done.renewal != nil {
		if t.rank > 0 && committed != nil {
			done.renewal.finished.set()
			t.await(ctx, done.renewal)
		} else {
			done.renewal.stop(ctx)
		}
	}
	if t.open == done {
		t.open = nil
	}
	if committed != nil {
		t.Version, t.Newest, t.Next, t.Action = *committed, *committed, *committed+1, "train"
		t.after, t.afterAttempt = done.Lease, done.Attempt
		t.claimed = t.rank > 0
	}
}

func (t *Trainer) lose(ctx context.Context, batch *Batch) {
	t.ahead = true
	if batch != nil {
		t.end(ctx, batch, nil)
	}
}

func checkOpen(batch *Batch) error {
	switch {
	case batch == nil:
		return nil
	case batch.Kind != "train":
		return refuse(Invalid, "a batch of kind %s is judged by, not trained on", batch.Kind)
	case batch.done:
		return refuse(Invalid, "batch %d has been published, acked or nacked already", batch.Lease)
	}
	return nil
}

// stamps are the versions of the weights that the forward pass used and that the step changed; -1 unstamped.
func stamps(batch *Batch) (forward, step int64) {
	if batch == nil || batch.ForwardVersion < 0 {
		return -1, -1
	}
	if batch.StepVersion >= 0 {
		return batch.ForwardVersion, batch.StepVersion
	}
	return batch.ForwardVersion, batch.held
}

func (t *Trainer) manifest(version int64, batch *Batch) map[string]any {
	var lease, attempt int64
	if batch != nil {
		lease, attempt = batch.Lease, batch.Attempt
	}
	forward, step := stamps(batch)
	return map[string]any{
		"trainer": t.name, "lease": lease, "attempt": attempt, "version": version, "kind": "full", "base_version": -1,
		"forward_version": forward, "step_version": step,
	}
}

// named is a file that is sent along.
type named struct {
	name    string
	content []byte
}

// upload sends a manifest and files as one multipart body.
func (t *Trainer) upload(ctx context.Context, manifest map[string]any, files []named) (int64, error) {
	listed := make([]map[string]any, len(files))
	for at, file := range files {
		listed[at] = map[string]any{"name": file.name, "size": len(file.content), "hash": digest(file.content)}
	}
	manifest["files"] = listed
	text, err := json.Marshal(manifest)
	if err != nil {
		return 0, err
	}
	boundary := "headway-" + t.transport.key()
	start := "--" + boundary + "\r\nContent-Disposition: form-data; name=\""
	body := &content{kind: "multipart/form-data; boundary=" + boundary}
	body.parts = append(body.parts, []byte(start+"manifest\"\r\nContent-Type: application/json\r\n\r\n"), text)
	for _, file := range files {
		head := "\r\n" + start + file.name + "\"; filename=\"" + file.name + "\"\r\nContent-Type: application/octet-stream\r\n\r\n"
		body.parts = append(body.parts, []byte(head), file.content)
	}
	body.parts = append(body.parts, []byte("\r\n--"+boundary+"--\r\n"))
	return t.send(ctx, call{body: body})
}

// send posts what commits a version, and returns the version.
func (t *Trainer) send(ctx context.Context, c call) (int64, error) {
	if c.path == "" {
		c.path = "/api/v1/weights"
	}
	if c.limit == 0 {
		c.limit = publishLimit
	}
	var reply struct {
		Version *int64 `json:"version"`
	}
	if err := t.transport.post(ctx, c, &reply); err != nil {
		return 0, err
	}
	if reply.Version == nil {
		return 0, refuse(Internal, "the answer to a commit does not say its version")
	}
	return *reply.Version, nil
}
