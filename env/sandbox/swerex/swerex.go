// Package swerex makes boxes on servers of SWE-ReX (swerex-remote). These run in containers that an
// operator makes, and let a client with their key run commands.
//
// A server keeps nothing apart by itself: all sessions share its files, its processes and its user.
// So by default a server has one box at a time. The container that the server runs in keeps that from
// others, and only its operator knows its worth (Options.Boundary).
//
// Commands go through /execute, where their streams stay apart and no shell reads their arguments;
// sessions have one terminal for all. A server does nothing else while /execute runs. So it only
// starts a program there, supervise.py, which runs the command beside the server and holds it to its
// limits. That program leaves its result in a file, which is asked for until it is there.
package swerex

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/env/sandbox"
)

// Options of the driver.
type Options struct {
	// URLs of the servers, at least one. Key is what they were started with (--auth-token).
	URLs []string
	Key  string
	// Boxes is how many a server may have at once; default 1. With more they see one another.
	Boxes int
	// Directory on the servers under which boxes lie. Where it is empty, that is
	// /var/tmp/headway-boxes, and while a server has one box alone /work leads to it, as in every other
	// box. Otherwise commands begin in a directory of another name, and only Box's own paths know /work.
	Directory string
	// Boundary is what the containers of the servers keep apart, as their operator knows it. Limits
	// in it are theirs as well: the driver's own are looked at 20 times a second and are no boundary.
	Boundary sandbox.Boundary
}

// Driver makes boxes on servers of SWE-ReX. It is safe for concurrent use.
type Driver struct {
	o       Options
	servers []*server
	link    string
	next    atomic.Uint64
}

var (
	_ sandbox.Driver   = (*Driver)(nil)
	_ sandbox.Attacher = (*Driver)(nil)
)

// New returns a driver, which has not asked any server for anything. The error says what is wrong
// with o.
func New(o Options) (*Driver, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("swerex: no servers: give the addresses of at least one (http://host:port)")
	}
	if strings.ContainsAny(o.Key, "\r\n") {
		return nil, errors.New("swerex: the key has a line break")
	}
	d := &Driver{o: o}
	if d.o.Boxes <= 0 {
		d.o.Boxes = 1
	}
	if d.o.Directory == "" {
		d.o.Directory = "/var/tmp/headway-boxes"
		if d.o.Boxes == 1 {
			d.link = sandbox.Work
		}
	} else if !strings.HasPrefix(o.Directory, "/") {
		return nil, fmt.Errorf("swerex: the directory %q is not absolute", o.Directory)
	}
	seen := map[string]bool{}
	for _, address := range o.URLs {
		address = strings.TrimRight(address, "/")
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("swerex: %q is no address of a server, such as http://host:port", address)
		}
		if seen[address] {
			return nil, fmt.Errorf("swerex: %s is named twice", address)
		}
		seen[address] = true
		d.servers = append(d.servers, &server{url: address, key: o.Key, store: d.o.Directory, askTime: askTime, makeTime: makeTime})
	}
	return d, nil
}

// Name is swerex.
func (d *Driver) Name() string { return "swerex" }

// Check asks every server whether it is alive, has what is asked of it and takes the key. Boxes are made where others do not
// answer, if one does: Why says so.
func (d *Driver) Check(ctx context.Context) (sandbox.Boundary, error) {
	errs := d.each(func(_ int, s *server) error { return s.check(ctx) })
	if err := known(errs); err != nil {
		return sandbox.Boundary{}, err
	}
	b := d.o.Boundary
	if d.o.Boxes > 1 {
		b.Files, b.Processes = false, false
	}
	whole := b.Files && b.Processes && b.Network && b.Kernel && b.Memory && b.CPU && b.ProcessCount && b.Disk && b.FileCount
	if !whole && b.Why == "" {
		b.Why = "a SWE-ReX server keeps nothing apart itself: what its container does, its operator has to say"
		if d.o.Boxes > 1 {
			b.Why = fmt.Sprintf("%d boxes share a server, its files and its processes; one box a server keeps them apart as its container does", d.o.Boxes)
		}
	}
	if err := errors.Join(errs...); err != nil {
		outage := fmt.Sprintf("boxes are made on the other servers, for %v", err)
		if b.Why != "" {
			outage = b.Why + "; " + outage
		}
		b.Why = outage
	}
	return b, nil
}

// Create makes a box on a server that has room: the next in turn. All full is a Failure of class
// Quota, none that answers one of BackendDown.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := checkSpec(id, spec); err != nil {
		return nil, err
	}
	first := d.next.Add(1)
	nonce := rand.Text()
	var failed error
	for i := range uint64(len(d.servers)) {
		s := d.servers[(first+i)%uint64(len(d.servers))]
		if !s.ready(ctx) {
			failed = cmp.Or(failed, error(sandbox.Fail(sandbox.BackendDown, "create", id, "%s was silent when it was asked last", s.url)))
			continue
		}
		err := s.make(ctx, id, nonce, d.o.Boxes, d.link)
		if err == nil {
			return newBox(s, id, spec, d.link), nil
		}
		if cause := ctx.Err(); cause != nil {
			// It may be there, half or whole.
			s.undo(ctx, id, d.link)
			return nil, fmt.Errorf("swerex: create %s: %w", id, cause)
		}
		if s.silent.Load() != 0 { // it may make the box yet: one of another name is made elsewhere
			return nil, err
		}
		// Of several reasons, that a server is full is the one that waiting helps.
		if failed == nil || sandbox.ClassOf(err) == sandbox.Quota {
			failed = err
		}
	}
	return nil, failed
}

// checkSpec refuses what no server can be asked for.
func checkSpec(id sandbox.ID, spec sandbox.Spec) error {
	if err := id.Check("create"); err != nil {
		return err
	}
	if owner, number, _ := strings.Cut(string(id), "."); owner == "" || number == "" {
		return sandbox.Fail(sandbox.Refused, "create", "", "the box's name %q has no owner: owner.number", id)
	}
	if err := spec.Check(id); err != nil {
		return err
	}
	if spec.Root != "" || spec.Image != "" || len(spec.Mounts) > 0 {
		return sandbox.Fail(sandbox.Refused, "create", id, "root, image and mounts are what a SWE-ReX server's container was started with: boxes cannot choose them")
	}
	return nil
}

// List names an owner's boxes on all servers.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	found := make([][]string, len(d.servers))
	errs := d.each(func(i int, s *server) error {
		a, err := s.ask(ctx, "list", "", request{Verb: "list"})
		found[i] = a.Boxes
		return err
	})
	var ids []sandbox.ID
	for _, name := range slices.Concat(found...) {
		if id := sandbox.ID(name); id.OwnedBy(owner) {
			ids = append(ids, id)
		}
	}
	return ids, known(errs)
}

// each does something with all servers at once.
func (d *Driver) each(do func(i int, s *server) error) []error {
	errs := make([]error, len(d.servers))
	var all sync.WaitGroup
	for i, s := range d.servers {
		all.Go(func() { errs[i] = do(i, s) })
	}
	all.Wait()
	return errs
}

// known is the error of servers together. Silence of some is none while another has answered.
func known(errs []error) error {
	silent := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case sandbox.ClassOf(err) != sandbox.BackendDown:
			return err
		default:
			silent++
		}
	}
	if silent < len(errs) {
		return nil
	}
	return errors.Join(errs...)
}

// Destroy ends a box wherever it is. It is gone where a server says so of it, or all say that they have none.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	var ended atomic.Bool
	errs := d.each(func(_ int, s *server) error {
		a, err := s.ask(ctx, "destroy", id, request{Verb: "destroy", ID: id, Link: d.link})
		if err == nil && !a.Absent {
			ended.Store(true)
		}
		return err
	})
	if ended.Load() {
		return nil
	}
	return errors.Join(errs...)
}

// Attach returns a box that an earlier process made.
func (d *Driver) Attach(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := checkSpec(id, spec); err != nil {
		return nil, err
	}
	var failed error = sandbox.Fail(sandbox.Lost, "attach", id, "no server has the box")
	for _, s := range d.servers {
		_, err := s.ask(ctx, "attach", id, request{Verb: "attach", ID: id})
		if err == nil {
			return newBox(s, id, spec, d.link), nil
		}
		if sandbox.ClassOf(err) != sandbox.Lost {
			failed = err
		}
	}
	return nil, failed
}
