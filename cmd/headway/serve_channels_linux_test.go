package main

import (
	"bytes"
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// routedServer is a server that says the experts of every pass, and takes a time for every token.
func routedServer(t *testing.T) *enginetest.PolicyServer {
	t.Helper()
	s := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: servedPolicy, Context: 256, Weights: "as started", Spans: true, Rows: true,
		Named: versionOfView, Step: 2 * time.Millisecond})
	t.Cleanup(s.Close)
	return s
}

// channel fetches a channel of a batch: its parts (sequence, first row, rows) and its rows.
func (s *served) channel(b *batchtest.Tensors, name string) (parts [][3]int64, rows []byte) {
	s.t.Helper()
	body, _ := json.Marshal(protocol.ChannelRequest{Trainer: "t", Attempt: b.Lease.Attempt})
	status, raw := s.call(fmt.Sprintf("/api/v1/batches/%d/channels/%s", b.Lease.Lease, name), "application/json", body)
	if status != http.StatusOK {
		s.t.Fatalf("channel: %d %s", status, raw)
	}
	head, err := weights.ParseHeader(raw, int64(len(raw)))
	if err != nil {
		s.t.Fatal(err)
	}
	tensor := map[string][]byte{}
	for _, e := range head.Entries {
		tensor[e.Name] = raw[head.DataStart+e.Begin : head.DataStart+e.End]
	}
	for at := 0; at < len(tensor["parts"]); at += 24 {
		part := func(i int) int64 { return int64(endian.LittleEndian.Uint64(tensor["parts"][at+8*i:])) }
		parts = append(parts, [3]int64{part(0), part(1), part(2)})
	}
	return parts, tensor["rows"]
}

// routed fetches the experts of a batch and holds every row against what the weights choose that sampled the token
// after it. It returns how many rows there are, and how many of sampled tokens lack.
func (s *served) routed(b *batchtest.Tensors) (present, absent int) {
	s.t.Helper()
	parts, rows := s.channel(b, channel.RoutedExperts)
	seen := map[int64]bool{}
	for _, part := range parts {
		first, end := b.Offsets[part[0]], b.Offsets[part[0]+1]
		for row := part[1]; row < part[1]+part[2]; row++ {
			i := first + row
			got := rows[:enginetest.ExpertsBytes]
			rows, seen[i] = rows[enginetest.ExpertsBytes:], true
			if i+1 < end && b.LossMask[i+1] == 1 {
				want := servedPolicy.Experts(fmt.Sprintf("v%06d", b.Versions[i+1]), b.Tokens[first:i+1])
				if !bytes.Equal(got, want) {
					s.t.Fatalf("lease %d: the experts at token %d of sequence %d are %v, want %v of version %d", b.Lease.Lease, row, part[0], got, want, b.Versions[i+1])
				}
			}
		}
	}
	for r := range len(b.Offsets) - 1 {
		for i := b.Offsets[r]; i+1 < b.Offsets[r+1]; i++ {
			if b.LossMask[i+1] == 1 && !seen[i] {
				absent++
			}
		}
	}
	if len(rows) > 0 || b.Lease.Channels[0].Rows != len(seen) {
		s.t.Errorf("%d bytes of rows are left, the lease says %+v", len(rows), b.Lease.Channels)
	}
	return len(seen), absent
}

// inCell is a document whose engine at an address is of the cell b, which the control plane's own NATS server takes in.
func inCell(t *testing.T, document, url string) string {
	t.Helper()
	document = strings.Replace(document, fmt.Sprintf("url: %q, slots: 4}]", url), fmt.Sprintf("url: %q, slots: 4, cell: b}]", url), 1)
	return strings.Replace(document, "store: {", fmt.Sprintf("store: {nats: {listen: %q}, ", freeAddress(t)), 1)
}

// TestServeSaysRows: the experts of every pass reach the trainer through switches of weights and two deaths of the
// control plane. Each is that of the weights that sampled the token after it, or is absent and counted.
func TestServeSaysRows(t *testing.T) {
	t.Run("own", func(t *testing.T) { checkSaysRows(t, false) })
	t.Run("cell", func(t *testing.T) { checkSaysRows(t, true) })
}

// checkSaysRows plays on two engines of the control plane, or on one of it and one of a cell.
func checkSaysRows(t *testing.T, cell bool) {
	t.Helper()
	const steps = 9
	dir := t.TempDir()
	a, b := routedServer(t), routedServer(t)
	engines := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 4}, {kind: vllm, name: b, url: %q, slots: 4}", a.URL(), b.URL())
	document := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, steps)
	document = strings.Replace(document, "rollout: {group_size: 4}", "rollout: {group_size: 4, channels: [routed_experts]}", 1)
	var c *served
	var workers sync.WaitGroup
	if cell {
		document = inCell(t, document, b.URL())
	}
	present, absent, mixed := 0, 0, 0
	for step := 0; step < steps; {
		s := startServe(t, dir, document, "--set", "server.claim_s=1") // workers end with it, and their claims outlive it
		if cell && c == nil {
			c = startCell(t, dir, "b", "--listen", "127.0.0.1:0")
			for range 8 {
				workers.Go(c.play)
			}
		}
		for range 8 {
			workers.Go(s.play)
		}
		s.connect()
		for range 3 {
			batch := s.leased()
			there, lack := s.routed(batch)
			present, absent = present+there, absent+lack
			for i := 1; i < len(batch.Versions); i++ {
				if batch.LossMask[i] == 1 && batch.LossMask[i-1] == 1 && batch.Versions[i] != batch.Versions[i-1] {
					mixed++
				}
			}
			step++
			s.publish(batch, byte(step))
		}
		s.kill()
		if !cell {
			workers.Wait()
		}
	}
	if cell {
		c.kill()
		workers.Wait()
		played := 0
		c.claimed.Range(func(any, any) bool { played++; return true })
		if t.Logf("the cell has played %d rollouts", played); played == 0 {
			t.Error("the cell has played nothing")
		}
	}
	if present == 0 || absent > present/20 || mixed == 0 {
		t.Errorf("%d rows are there, %d of sampled tokens lack, %d rollouts changed their version on the way", present, absent, mixed)
	}
	t.Logf("%d rows are there, %d of sampled tokens lack, %d changes of version inside rollouts", present, absent, mixed)
}

// TestServeSaysRowsThroughOutages: workers die with rollouts that they have sampled, and NATS goes away and comes back in
// the middle of others. Every row that reaches the trainer is that of the weights that sampled, or is absent and counted.
func TestServeSaysRowsThroughOutages(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("waits for claims to run out and for a server to come back; HEADWAY_LONG=1 runs it")
	}
	const steps = 6
	n := newNATSServer(t)
	a := routedServer(t)
	document := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 8}", a.URL()), steps)
	document = strings.Replace(document, "rollout: {group_size: 4}", "rollout: {group_size: 4, channels: [routed_experts]}", 1)
	s := startServe(t, t.TempDir(), document, "--nats", n.server.ClientURL(), "--set", "store.nats.writer_s=60", "--set", "server.claim_s=2")
	for range 3 { // workers that die with what they have sampled
		s.sample(s.claim())
	}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(s.play)
	}
	s.connect()
	present, absent := 0, 0
	for step := 1; step <= steps; step++ {
		if step%2 == 0 {
			n.stop()
			n.start()
		}
		batch := s.leased()
		there, lack := s.routed(batch)
		present, absent = present+there, absent+lack
		s.publish(batch, byte(step))
	}
	workers.Wait()
	if present == 0 || absent > present/20 {
		t.Errorf("%d rows are there, %d of sampled tokens lack", present, absent)
	}
	t.Logf("%d rows are there, %d of sampled tokens lack", present, absent)
}
