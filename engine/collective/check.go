package collective

import (
	"github.com/headway-rl/headway/api/protocol"
)

// Bounds of what a sender may say.
const (
	instanceMax = 128
	holdsMax    = 1 << 10
	// ordersMax is more than a run has engines.
	ordersMax  = 1 << 13
	tensorsMax = 1 << 20
	nameMax    = 1 << 10
	dimsMax    = 64
	digestMax  = 1 << 10
	// numbersMax of a tensor have a number of bytes that can be counted.
	numbersMax = 1 << 50
	// errorMax is how much of an error is kept.
	errorMax = 4 << 10
)

// check refuses a request that cannot be meant.
func check(name string, req *protocol.SenderRequest) error {
	invalid := func(format string, args ...any) error {
		return protocol.Refuse(protocol.CodeInvalid, format, args...)
	}
	if err := protocol.CheckName(name); err != nil {
		return invalid("the sender's name is %.140q: %v", name, err)
	}
	switch {
	case req.Instance == "" || len(req.Instance) > instanceMax:
		return invalid("sender %s: instance is %.140q: want 1 to %d characters that no other process has", name, req.Instance, instanceMax)
	case req.Backend != "nccl" && req.Backend != "gloo":
		return invalid("sender %s: backend is %.40q: want nccl or gloo", name, req.Backend)
	case len(req.Holds) > holdsMax:
		return invalid("sender %s: it holds %d versions: want at most %d", name, len(req.Holds), holdsMax)
	case len(req.Knows) > ordersMax || len(req.Done) > ordersMax:
		return invalid("sender %s: it knows %d commands and has done %d: want at most %d of each", name, len(req.Knows), len(req.Done), ordersMax)
	}
	for _, v := range req.Holds {
		if v < 0 {
			return invalid("sender %s: it holds version %d: want none negative", name, v)
		}
	}
	for i := range req.Done {
		if err := checkDone(name, &req.Done[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkDone refuses what no tensors can be.
func checkDone(name string, done *protocol.SenderDone) error {
	invalid := func(format string, args ...any) error {
		return protocol.Refuse(protocol.CodeInvalid, "sender %s: command %d: "+format, append([]any{name, done.Seq}, args...)...)
	}
	switch {
	case len(done.Tensors) > tensorsMax:
		return invalid("%d tensors: want at most %d", len(done.Tensors), tensorsMax)
	case len(done.Digest) > digestMax:
		return invalid("a digest of %d characters: want at most %d", len(done.Digest), digestMax)
	}
	for i, t := range done.Tensors {
		switch {
		case t.Name == "" || len(t.Name) > nameMax:
			return invalid("tensor %d is called %.80q: want 1 to %d characters", i, t.Name, nameMax)
		case t.DType == "" || len(t.DType) > nameMax:
			return invalid("tensor %.80s is of the type %.80q: want torch's word for it, such as bfloat16", t.Name, t.DType)
		case len(t.Shape) > dimsMax:
			return invalid("tensor %.80s has %d dimensions: want at most %d", t.Name, len(t.Shape), dimsMax)
		}
		left := int64(numbersMax)
		for _, n := range t.Shape {
			switch {
			case n < 0:
				return invalid("tensor %.80s has a dimension of %d: want none negative", t.Name, n)
			case n > left:
				return invalid("tensor %.80s is of the shape %d: want at most %d numbers in it", t.Name, t.Shape, int64(numbersMax))
			}
			left /= max(n, 1)
		}
	}
	return nil
}
