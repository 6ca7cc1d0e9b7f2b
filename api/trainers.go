package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// trainerRoutes has the paths of trainers and of the versions that they publish.
func (s *Server) trainerRoutes() {
	s.route("POST /api/v1/trainers/connect", RoleTrainer, s.connectTrainer, replyAsIs)
	// Not takesWork: while the server drains, the ranks of a step that has begun still get their shares.
	s.route("POST /api/v1/batches/lease", RoleTrainer, s.leaseBatch, replyAsIs)
	s.route("POST /api/v1/groups/ready", RoleTrainer, s.readyGroups, replyAsIs)
	s.route("GET /api/v1/groups/{group}", RoleTrainer, s.readGroup)
	s.route("POST /api/v1/batches/{lease}/channels/{name}", RoleTrainer, s.readChannel, replyAsIs)
	s.route("POST /api/v1/batches/{lease}/media/{name}", RoleTrainer, s.readMedium, replyAsIs)
	s.route("POST /api/v1/batches/{lease}/renew", RoleTrainer, batchCall(s, func() protocol.RenewRequest { return protocol.RenewRequest{} }, Trainers.Renew), replyAsIs)
	s.route("POST /api/v1/batches/{lease}/ack", RoleTrainer, batchCall(s, func() protocol.AckRequest {
		return protocol.AckRequest{ForwardVersion: loop.NoVersion, StepVersion: loop.NoVersion}
	}, Trainers.Ack))
	s.route("POST /api/v1/batches/{lease}/nack", RoleTrainer, s.nackBatch)
	s.route("POST /api/v1/weights", RoleTrainer, s.publishWeights, largeBody, replyAsIs)
	s.route("GET /api/v1/weights/{version}", RoleTrainer|RoleEngine|RoleViewer, s.readVersion)
	s.route("GET /api/v1/weights/{version}/files/{name}", RoleTrainer|RoleEngine, s.readFile)
}

func (s *Server) connectTrainer(w http.ResponseWriter, r *http.Request) error {
	port, err := s.trainers()
	if err != nil {
		return err
	}
	req := protocol.ConnectRequest{Version: loop.NoVersion}
	if err := readJSON(r, &req); err != nil {
		return err
	}
	req.Caller = callerOf(w, r)
	reply, err := port.Connect(r.Context(), req)
	return writeReply(w, reply, err)
}

// leaseBatch answers with a batch as it lies; 204 says that none came in time.
func (s *Server) leaseBatch(w http.ResponseWriter, r *http.Request) error {
	port, err := s.trainers()
	if err != nil {
		return err
	}
	var req protocol.LeaseRequest
	if err := readWaiting(r, &req, &req.WaitS); err != nil {
		return err
	}
	body, err := port.Lease(r.Context(), req)
	if err != nil {
		return err
	}
	if body == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if req.Form == protocol.FormReferences {
		return sendBody(w, body, jsonType)
	}
	return sendBody(w, body, bytesType)
}

// readyGroups answers with references to groups that can be fetched.
func (s *Server) readyGroups(w http.ResponseWriter, r *http.Request) error {
	port, err := s.trainers()
	if err != nil {
		return err
	}
	var req protocol.ReadyRequest
	if err := readWaiting(r, &req, &req.WaitS); err != nil {
		return err
	}
	ctx, cancel := s.untilEnding(r)
	defer cancel()
	reply, err := port.Ready(ctx, req)
	return writeReply(w, reply, err)
}

// readGroup answers with the body of a group. It has no parts: a group is small, and is made anew for every call.
func (s *Server) readGroup(w http.ResponseWriter, r *http.Request) error {
	port, err := s.trainers()
	if err != nil {
		return err
	}
	id, err := pathNumber(r, "group")
	if err != nil {
		return err
	}
	body, err := port.Group(r.Context(), loop.GroupID(id))
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return body.Close()
	}
	return sendBody(w, body, bytesType)
}

// readChannel answers with the rows of a side channel.
func (s *Server) readChannel(w http.ResponseWriter, r *http.Request) error {
	var req protocol.ChannelRequest
	port, lease, err := s.onLease(r, &req)
	if err != nil {
		return err
	}
	body, err := port.Channel(r.Context(), lease, r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return sendBody(w, body, bytesType)
}

// readMedium answers with the bytes of a medium.
func (s *Server) readMedium(w http.ResponseWriter, r *http.Request) error {
	var req protocol.ChannelRequest
	port, lease, err := s.onLease(r, &req)
	if err != nil {
		return err
	}
	body, err := port.Medium(r.Context(), lease, r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return sendBody(w, body, bytesType)
}

// Types of bodies.
const (
	bytesType = "application/octet-stream"
	jsonType  = "application/json"
)

// sendBody answers with a body as it lies.
func sendBody(w http.ResponseWriter, body Body, kind string) error {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.FormatInt(body.Size(), 10))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, err := body.WriteTo(w)
	return errors.Join(err, body.Close())
}

// onLease reads a call that names a lease in its path.
func (s *Server) onLease(r *http.Request, request any) (Trainers, loop.LeaseID, error) {
	port, err := s.trainers()
	if err != nil {
		return nil, 0, err
	}
	lease, err := pathNumber(r, "lease")
	if err != nil {
		return nil, 0, err
	}
	return port, loop.LeaseID(lease), readJSON(r, request)
}

// batchCall handles a call that names a lease in its path. fresh has what a field
// means that is left out.
func batchCall[Request, Reply any](s *Server, fresh func() Request, call func(Trainers, context.Context, loop.LeaseID, Request) (Reply, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		req := fresh()
		port, lease, err := s.onLease(r, &req)
		if err != nil {
			return err
		}
		reply, err := call(port, r.Context(), lease, req)
		return writeReply(w, reply, err)
	}
}

// nackBatch answers an empty object.
func (s *Server) nackBatch(w http.ResponseWriter, r *http.Request) error {
	call := func(port Trainers, ctx context.Context, lease loop.LeaseID, req protocol.NackRequest) (struct{}, error) {
		return struct{}{}, port.Nack(ctx, lease, req)
	}
	return batchCall(s, func() protocol.NackRequest { return protocol.NackRequest{} }, call)(w, r)
}

// manifestBytesMax bounds the JSON of a publish: a version may have many files.
const manifestBytesMax = 16 << 20

// manifestPart is the name of the first part of a publish.
const manifestPart = "manifest"

// publishWeights takes a version as multipart/form-data, its files as they come, or
// as JSON that says where they are.
func (s *Server) publishWeights(w http.ResponseWriter, r *http.Request) error {
	port, err := s.trainers()
	if err != nil {
		return err
	}
	req := protocol.PublishRequest{BaseVersion: loop.NoVersion, ForwardVersion: loop.NoVersion, StepVersion: loop.NoVersion}
	var next func() (string, io.Reader, error)
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "multipart/form-data" {
		if next, err = readParts(r, &req); err != nil {
			return err
		}
	} else {
		r.Body = http.MaxBytesReader(w, r.Body, manifestBytesMax)
		if err := readJSON(r, &req); err != nil {
			return err
		}
	}
	reply, err := port.Publish(r.Context(), req, next)
	return writeReply(w, reply, err)
}

// readParts reads the manifest of a publish and returns what hands out its files, each as
// it comes: nothing but the manifest is held in memory.
func readParts(r *http.Request, req *protocol.PublishRequest) (next func() (string, io.Reader, error), err error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the body's Content-Type is %.100q: %v", r.Header.Get("Content-Type"), err)
	}
	first, err := parts.NextRawPart()
	if err == io.EOF {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the body has no parts: want %s, then one for each file", manifestPart)
	}
	if err != nil {
		return nil, partError("the first part", err)
	}
	if first.FormName() != manifestPart {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the first part is %.100q: want %s, and after it the files in its order", first.FormName(), manifestPart)
	}
	text, err := io.ReadAll(io.LimitReader(first, manifestBytesMax+1))
	if err != nil {
		return nil, partError("the part "+manifestPart, err)
	}
	if len(text) > manifestBytesMax {
		return nil, protocol.Refuse(protocol.CodeTooLarge, "the part %s exceeds %d bytes: want the JSON of a publish, and the files in parts of their own", manifestPart, manifestBytesMax)
	}
	if err := decodeJSON(text, req); err != nil {
		return nil, err
	}
	return func() (string, io.Reader, error) {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return "", nil, err
		}
		if err != nil {
			return "", nil, partError("the next part", err)
		}
		name := part.FormName()
		file := &filePart{Part: part, name: name}
		if strings.HasSuffix(name, ".safetensors") {
			file.held, _ = r.Context().Value(heldKey{}).(*held)
		}
		return name, file, nil
	}, nil
}

// filePart is a file on its way; where the connection breaks is told apart from its end.
type filePart struct {
	*multipart.Part
	name string
	// held counts the header of a file of tensors, which the store keeps until the publish has ended; nil of others.
	held *held
	// length has the header's length as it stands before it, and headed the bytes of the header that came.
	length []byte
	headed int64
}

// Read reads on in the part.
func (p *filePart) Read(b []byte) (int, error) {
	n, err := p.Part.Read(b)
	if err != nil && err != io.EOF {
		err = partError(fmt.Sprintf("file %.100q", p.name), err)
	}
	if full := p.count(b[:n]); full != nil {
		return n, full
	}
	return n, err
}

// count counts what came of the header among the bodies that are held in memory.
func (p *filePart) count(came []byte) error {
	if p.held == nil {
		return nil
	}
	need := min(8-len(p.length), len(came))
	p.length, came = append(p.length, came[:need]...), came[need:]
	if len(p.length) < 8 {
		return nil
	}
	if left := binary.LittleEndian.Uint64(p.length) - uint64(p.headed); uint64(len(came)) > left {
		came = came[:left]
	}
	p.headed += int64(len(came))
	return p.held.take(len(came))
}

// partError says where a multipart body broke off or is none.
func partError(where string, err error) *protocol.Refusal {
	if body, ok := errors.AsType[*bodyError](err); ok {
		refusal := body.refusal()
		refusal.Message = where + ": " + refusal.Message
		return refusal
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return protocol.Refuse(protocol.CodeInvalid, "%s: the body broke off before its last boundary: send it again", where)
	}
	return protocol.Refuse(protocol.CodeInvalid, "%s: %v", where, err)
}
