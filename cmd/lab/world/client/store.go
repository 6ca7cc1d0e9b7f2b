package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// optimizerPrefix begins the names of the trainer's own files.
	optimizerPrefix = "optimizer."
	streamLimit     = 60 * time.Second
	streamPause     = 200 * time.Millisecond
	// streamDefects bounds how often an answer of 500 is taken for a passing one.
	streamDefects = 2
	// fetches bounds how often a file is fetched that is not as its manifest says.
	fetches = 3
)

// Stored is what the server says of a version.
type Stored struct {
	Version  *int64 `json:"version"`
	Manifest struct {
		RestoredFrom *int64   `json:"restored_from"`
		Files        []listed `json:"files"`
	} `json:"manifest"`
}

// listed is a file as a version's manifest has it. The hash is empty where the manifest has none.
type listed struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// Latest stands for the newest version.
const Latest = int64(-1)

// versionName is a version in a path.
func versionName(version int64) string {
	if version == Latest {
		return "latest"
	}
	return fmt.Sprint(version)
}

// State asks for a version's manifest.
func (t *Transport) State(ctx context.Context, version int64) (Stored, error) {
	var found Stored
	if err := t.get(ctx, call{path: "/api/v1/weights/" + versionName(version)}, &found); err != nil {
		return found, err
	}
	if found.Version == nil {
		return found, refuse(Internal, "the state of version %s does not say its number", versionName(version))
	}
	return found, nil
}

// model reads the model's tensors of a version, and the version's number.
func (t *Transport) model(ctx context.Context, version int64) (int64, []Tensor, error) {
	return t.read(ctx, version, func(name string) bool { return !strings.HasPrefix(name, optimizerPrefix) })
}

// optimizer reads the trainer's own tensors of a version; none where it has none.
func (t *Transport) optimizer(ctx context.Context, version int64) ([]Tensor, error) {
	_, found, err := t.read(ctx, version, func(name string) bool { return strings.HasPrefix(name, optimizerPrefix) })
	return found, err
}

// read reads the wanted files of a version. Of the newest it begins anew where that was pruned meanwhile.
func (t *Transport) read(ctx context.Context, version int64, wanted func(string) bool) (int64, []Tensor, error) {
	for {
		state, err := t.State(ctx, version)
		if err != nil {
			return 0, nil, err
		}
		number := *state.Version
		var found []Tensor
		for _, file := range state.Manifest.Files {
			if err == nil && wanted(file.Name) {
				var more []Tensor
				more, err = t.file(ctx, number, file)
				found = append(found, more...)
			}
		}
		if err == nil {
			return number, found, nil
		}
		if !IsKind(err, NotFound) || version != Latest {
			return 0, nil, err
		}
		newer, failed := t.State(ctx, Latest)
		if failed != nil {
			return 0, nil, failed
		}
		if *newer.Version == number {
			return 0, nil, err
		}
	}
}

// file reads a file until it has the hash that its manifest says.
func (t *Transport) file(ctx context.Context, version int64, file listed) ([]Tensor, error) {
	for range fetches {
		content, err := t.pull(ctx, version, file.Name)
		if err != nil {
			return nil, err
		}
		if file.Hash == "" || digest(content) == file.Hash {
			tensors, _, err := decode(content, fmt.Sprintf("%s of version %d", file.Name, version))
			return tensors, err
		}
		t.next()
	}
	return nil, refuse(Internal, "%s of version %d came %d times with another hash than its manifest's", file.Name, version, fetches)
}

// pull reads a file as it comes. A transfer that breaks off goes on where it was.
func (t *Transport) pull(ctx context.Context, version int64, name string) ([]byte, error) {
	var content bytes.Buffer
	deadline, defects := time.Now().Add(max(t.patience, 0)), 0
	for {
		at := content.Len()
		err := t.stream(ctx, fmt.Sprintf("/api/v1/weights/%d/files/%s", version, name), &content)
		switch {
		case err == nil:
			return content.Bytes(), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errClosed):
			return nil, err
		}
		var refused *Error
		if errors.As(err, &refused) && !IsKind(err, Unavailable, Busy, Internal) {
			return nil, err
		}
		t.next()
		if IsKind(err, Internal) {
			defects++
		}
		if content.Len() > at {
			deadline = time.Now().Add(max(t.patience, 0))
		}
		if time.Now().After(deadline) || defects > streamDefects || t.stopped.wait(ctx, streamPause) {
			if refused != nil {
				return nil, err
			}
			broken := refuse(Unavailable, "%s of version %d broke off at byte %d: %v", name, version, content.Len(), err)
			broken.cause = err
			return nil, broken
		}
	}
}

// stream asks once for the rest of a file and appends what comes of it.
func (t *Transport) stream(ctx context.Context, path string, content *bytes.Buffer) error {
	request, err := http.NewRequest(http.MethodGet, t.URL()+path, nil)
	if err != nil {
		return err
	}
	at := content.Len()
	if at > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	return t.open(ctx, request, streamLimit, func(response *http.Response, body io.Reader) error {
		if response.StatusCode == http.StatusRequestedRangeNotSatisfiable && at > 0 { // it was whole already
			return nil
		}
		if response.StatusCode >= 300 {
			said, err := io.ReadAll(body)
			if err != nil {
				return err
			}
			return refusal(response.StatusCode, said)
		}
		if at > 0 && response.StatusCode != http.StatusPartialContent {
			content.Reset()
		}
		_, err := content.ReadFrom(body)
		return err
	})
}
