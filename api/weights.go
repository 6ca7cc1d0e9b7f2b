package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// latest names the newest version with weights in a path.
const latest = "latest"

// pathVersion reads the version of the path.
func pathVersion(r *http.Request, port Versions) (loop.Version, error) {
	if r.PathValue("version") != latest {
		v, err := pathNumber(r, "version")
		return loop.Version(v), err
	}
	if v := port.Newest(); v != loop.NoVersion {
		return v, nil
	}
	return 0, protocol.Refuse(protocol.CodeNotFound, "no version has been published yet")
}

// readVersion answers with a version's manifest and where the version is served.
func (s *Server) readVersion(w http.ResponseWriter, r *http.Request) error {
	port, err := s.versions()
	if err != nil {
		return err
	}
	version, err := pathVersion(r, port)
	if err != nil {
		return err
	}
	state := protocol.VersionState{Version: version, State: "published", Engines: []protocol.EngineVersion{}}
	text, err := port.ManifestText(r.Context(), version)
	switch refusal, ok := errors.AsType[*protocol.Refusal](err); {
	case ok && refusal.Code == protocol.CodeNotFound && version < port.Newest():
		state.State = "pruned"
	case err != nil:
		return err
	default:
		state.Manifest = json.RawMessage(text)
		state.Engines = append(state.Engines, s.ports().Plane.Engines()...)
		state.State = stateOf(version, state.Engines)
	}
	return writeJSON(w, state)
}

// stateOf says whether any engine serves a version, or is about to.
func stateOf(version loop.Version, engines []protocol.EngineVersion) string {
	state := "published"
	for _, e := range engines {
		if e.Version == version {
			return "served"
		}
		if e.Loaded == version {
			state = "loading"
		}
	}
	return state
}

// readFile answers with a file of a version, or the part of it that the Range header names.
// A Range of several parts, or of another unit, is answered with the whole file.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) error {
	port, err := s.versions()
	if err != nil {
		return err
	}
	version, err := pathVersion(r, port)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	content, size, err := port.OpenFile(r.Context(), version, name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read
	header := w.Header()
	header.Set("Accept-Ranges", "bytes")
	header.Set("X-Headway-Version", strconv.FormatInt(int64(version), 10))
	first, length, part, err := byteRange(r.Header.Get("Range"), size)
	if err != nil {
		header.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return nil
	}
	if first > 0 {
		again, _, err := port.OpenFile(r.Context(), version, name, first)
		if err != nil {
			return err
		}
		_ = content.Close()
		content = again
	}
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.FormatInt(length, 10))
	status := http.StatusOK
	if part {
		status = http.StatusPartialContent
		header.Set("Content-Range", "bytes "+strconv.FormatInt(first, 10)+"-"+strconv.FormatInt(first+length-1, 10)+"/"+strconv.FormatInt(size, 10))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err = io.CopyN(w, content, length)
	return err
}

// errUnsatisfiable: a Range begins behind the end.
var errUnsatisfiable = errors.New("no byte of the range is there")

// byteRange reads a Range header: bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH. part is false
// where the whole file is to be sent.
func byteRange(text string, size int64) (first, length int64, part bool, err error) {
	spec, ok := strings.CutPrefix(text, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash || strings.Contains(spec, ",") {
		return 0, size, false, nil
	}
	number := func(digits string) (int64, bool) {
		n, err := strconv.ParseUint(digits, 10, 63)
		return int64(n), err == nil
	}
	last, lastOK := number(to)
	if from == "" { // the last so many bytes
		if !lastOK {
			return 0, size, false, nil
		}
		last = min(last, size)
		if last == 0 {
			return 0, 0, false, errUnsatisfiable
		}
		return size - last, last, true, nil
	}
	first, firstOK := number(from)
	switch {
	case !firstOK, to != "" && (!lastOK || last < first):
		return 0, size, false, nil
	case first >= size:
		return 0, 0, false, errUnsatisfiable
	case to == "":
		last = size - 1
	}
	last = min(last, size-1)
	return first, last - first + 1, true, nil
}
