// Package e2b makes boxes of E2B's hosted sandboxes, or of an installation of one's own. They are small virtual
// machines, which a REST API starts and ends. Their daemon, envd, runs commands over Connect-RPC.
//
// A sandbox there lives for 15 s unless more is asked for. So a time is always sent, and sent again while the box is
// used. A sandbox that a crashed control plane left behind ends by itself.
//
// This package has been tested against a fake that was written by E2B's published interfaces
// (spec/openapi.yml and process.proto of e2b-dev/infra), not against the service.
package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Options of the driver.
type Options struct {
	// URL of the API; default https://api.e2b.app. Key is the account's.
	URL, Key string
	// Template that boxes start from where the Spec names no image; default base.
	Template string
	// User that commands run as; default user. Processes that commands of root leave behind are not ended
	// with them.
	User string
	// Lifetime is how long a box lives on after its last use, in whole seconds. Default 5 min.
	Lifetime time.Duration
	// Envd is the address of a sandbox's daemon, with {id} and {domain} in it; default https://49983-{id}.{domain}.
	Envd string
}

// Driver makes boxes of E2B. It is safe for concurrent use.
type Driver struct {
	o      Options
	client *http.Client
	// refresh is how often a box's life is lengthened: three times within its Lifetime.
	refresh time.Duration
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver, which has not asked for anything. The error says what is wrong with o.
func New(o Options) (*Driver, error) {
	for value, otherwise := range map[*string]string{&o.URL: "https://api.e2b.app", &o.Template: "base", &o.User: "user", &o.Envd: "https://49983-{id}.{domain}"} {
		*value = cmp.Or(*value, otherwise)
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("e2b: %q is no address of an API, such as https://api.e2b.app", o.URL)
	}
	if o.Key == "" || strings.ContainsAny(o.Key, "\r\n") {
		return nil, errors.New("e2b: no key, or one of several lines: it is in the account's settings")
	}
	o.Lifetime = cmp.Or(o.Lifetime, 5*time.Minute)
	if o.Lifetime < 15*time.Second {
		return nil, fmt.Errorf("e2b: a lifetime of %s is too short to be lengthened in time: 15s or more", o.Lifetime)
	}
	return &Driver{o: o, client: http.DefaultClient, refresh: o.Lifetime / 3}, nil
}

// Name is e2b.
func (d *Driver) Name() string { return "e2b" }

// Check asks for one sandbox of the account, to see whether the key is taken. The Boundary is what E2B
// says of its machines.
func (d *Driver) Check(ctx context.Context) (sandbox.Boundary, error) {
	if _, err := d.do(ctx, call{op: "check", method: http.MethodGet, path: "/v2/sandboxes?limit=1"}, nil); err != nil {
		return sandbox.Boundary{}, err
	}
	return sandbox.Boundary{
		Files: true, Processes: true, Network: true, Kernel: true, Memory: true, CPU: true, Disk: true,
		Why: "processes and files are bounded by what the machine's memory and disk hold; memory, processors and disk are the template's, whatever the limits say",
	}, nil
}

// made is what the API says of a sandbox.
type made struct {
	ID       string `json:"sandboxID"`
	Token    string `json:"envdAccessToken"`
	Domain   string
	Metadata map[string]string
}

// Names of a sandbox's metadata.
const (
	ownerName = "headwayOwner"
	boxName   = "headwayBox"
)

// seconds is the life that is asked for, the whole of it each time.
func (d *Driver) seconds() int { return int(d.o.Lifetime / time.Second) }

// Create starts a sandbox. Its image is a template.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := checkSpec(id, spec); err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.WithDefaults()
	template := cmp.Or(spec.Image, d.o.Template)
	owner, _, _ := strings.Cut(string(id), ".")
	body := map[string]any{
		"templateID": template, "timeout": d.seconds(), "secure": true, "allow_internet_access": spec.Network,
		"metadata": map[string]string{ownerName: owner, boxName: string(id)},
	}
	var m made
	_, err := d.do(ctx, call{op: "create", id: id, method: http.MethodPost, path: "/sandboxes", body: body}, &m)
	if err == nil && m.ID == "" {
		err = sandbox.Fail(sandbox.Protocol, "create", id, "the answer names no sandbox")
	}
	if err != nil {
		if ctx.Err() != nil {
			d.undo(ctx, id) // it may have been made
		}
		return nil, inContext(ctx, "create", id, err)
	}
	b := newBox(d, id, spec, m)
	if err := b.prepare(ctx); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = b.Close(closing) // else it ends with its life
		return nil, inContext(ctx, "create", id, err)
	}
	return b, nil
}

func (d *Driver) undo(ctx context.Context, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_ = d.Destroy(ctx, id) // else it ends with its life
}

// checkSpec refuses what cannot be asked for.
func checkSpec(id sandbox.ID, spec sandbox.Spec) error {
	if err := id.Check("create"); err != nil {
		return err
	}
	if err := spec.Check(id); err != nil {
		return err
	}
	if spec.Root != "" || len(spec.Mounts) > 0 {
		return sandbox.Fail(sandbox.Refused, "create", id, "root and mounts are of this host, which machines elsewhere do not see: build a template")
	}
	return nil
}

// List names the boxes of an owner.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	all, err := d.all(ctx, "list", "", ownerName+"="+owner)
	var ids []sandbox.ID
	for _, m := range all {
		if id := sandbox.ID(m.Metadata[boxName]); id.OwnedBy(owner) {
			ids = append(ids, id)
		}
	}
	return ids, inContext(ctx, "list", "", err)
}

// pagesMost bounds the pages of one answer: 100,000 sandboxes, more than an account of E2B may have.
const pagesMost = 1000

// all asks for sandboxes by their metadata, page by page.
func (d *Driver) all(ctx context.Context, op string, id sandbox.ID, metadata string) (all []made, err error) {
	for token, pages := "", 0; ; pages++ {
		if pages == pagesMost {
			return nil, fmt.Errorf("e2b: the service has more than %d pages of sandboxes with %s, or names a page again and again", pagesMost, metadata)
		}
		query := url.Values{"metadata": {metadata}, "limit": {"100"}}
		if token != "" {
			query.Set("nextToken", token)
		}
		var page []made
		header, err := d.do(ctx, call{op: op, id: id, method: http.MethodGet, path: "/v2/sandboxes?" + query.Encode()}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if token = header.Get("X-Next-Token"); token == "" {
			return all, nil
		}
	}
}

// Destroy ends the box that has the name.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	all, err := d.all(ctx, "destroy", id, boxName+"="+string(id))
	for _, m := range all {
		if m.Metadata[boxName] == string(id) { // and not of all that were asked for less exactly
			err = errors.Join(err, d.kill(ctx, id, m.ID))
		}
	}
	return inContext(ctx, "destroy", id, err)
}

// kill ends a sandbox by E2B's name for it.
func (d *Driver) kill(ctx context.Context, id sandbox.ID, name string) error {
	_, err := d.do(ctx, call{op: "destroy", id: id, method: http.MethodDelete, path: "/sandboxes/" + url.PathEscape(name)}, nil)
	if sandbox.ClassOf(err) == sandbox.Lost {
		return nil
	}
	return err
}

// inContext is the caller's own error where its time is over.
func inContext(ctx context.Context, op string, id sandbox.ID, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("e2b: %s %s: %w", op, id, ctx.Err())
	}
	return err
}

// call is one request to the API.
type call struct {
	op           string
	id           sandbox.ID
	method, path string
	body         any
}

// answerMost bounds an answer of the service, in bytes. A page of it names 100 sandboxes.
const answerMost = 16 << 20

func (d *Driver) do(ctx context.Context, c call, into any) (http.Header, error) {
	text, err := json.Marshal(c.body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, c.method, d.o.URL+c.path, strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	if c.body == nil {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	request.Header.Set("X-API-Key", d.o.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := d.client.Do(request)
	if err != nil {
		return nil, sandbox.Fail(sandbox.BackendDown, c.op, c.id, "no answer from E2B: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return nil, refusal(c.op, c.id, response)
	}
	if into != nil {
		if err := json.NewDecoder(io.LimitReader(response.Body, answerMost)).Decode(into); err != nil {
			return nil, sandbox.Fail(sandbox.Protocol, c.op, c.id, "%s: no answer as E2B's: %w", c.path, err)
		}
	}
	return response.Header, nil
}
