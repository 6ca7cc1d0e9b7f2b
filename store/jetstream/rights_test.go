package jetstream

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// writerUser is the user of a run's control planes at a server with rights. Each cell is one of its own name.
const writerUser = "plane:plane@"

// serverWithRights starts a server where the cells of a run have their rights alone. asCell enters it as one of them.
func serverWithRights(t *testing.T, run string) (url string) {
	t.Helper()
	url = startServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "plane", Password: "plane"}}
		for _, cell := range []string{"b", "1-b", "rack.1-b"} {
			o.Users = append(o.Users, userOf(run, cell, cell))
		}
	})
	return strings.Replace(url, "nats://", "nats://"+writerUser, 1)
}

// asCell are the options of a cell, which fail the test where it lacks a right.
func asCell(t testing.TB, o Options, cell string) Options {
	o.URL = strings.Replace(o.URL, writerUser, cell+":"+cell+"@", 1)
	o.Logf = func(format string, args ...any) {
		for _, arg := range args {
			if err, is := arg.(error); is && errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("cell %s: %v", cell, err)
			}
		}
	}
	return o
}

// TestRightsOfACell: by its rights a cell does nothing to the run that is not its own part. Each attempt is refused, and what it
// would have changed is as it was.
func TestRightsOfACell(t *testing.T) {
	o := Options{URL: serverWithRights(t, "guarded"), Run: "guarded", CellTurns: true}
	s := open(t, o)
	enc := begin(t, s)
	must(t, s.Append([][]byte{storetest.Event(enc, 1)}))
	c, b := openCell(t, o, "1-b"), openCell(t, o, "b")
	must(t, c.KeepTurn(port.RolloutID{Group: 1, Attempt: 1}, 0, []byte("turn")))
	refer(t, s, b, storetest.Sample(port.RolloutID{Group: 1}, 3))
	heard := make(chan string, 9)
	stop, err := s.HearCells(func(cell string, _ []byte) []byte { heard <- cell; return nil })
	must(t, err)
	defer stop()
	before := state(t, s)

	conn, err := dial(asCell(t, Options{URL: o.URL, Run: "more"}, "b"), nil, "test", []nats.Option{nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})})
	must(t, err)
	defer conn.Close()
	refuses := func(what, subject string, err error) {
		t.Helper()
		must(t, errors.Join(err, conn.Flush())) // behind it the server has said what it refuses
		if last := fmt.Sprint(conn.LastError()); !strings.Contains(strings.ToLower(last), fmt.Sprintf("%s to %q", what, strings.ToLower(subject))) {
			t.Errorf("%s to %s is not refused; the last refusal is %s", what, subject, last)
		}
	}
	n := namesOf(o.Run)
	const api = jetstream.DefaultAPIPrefix
	for _, subject := range []string{
		n.logSubject, n.header + ".0", n.snapshots[0] + ".0", n.cellSubject("1-b"), n.cellSubject("b") + ".more", n.turnsOf(port.RolloutID{Group: 1, Attempt: 1}, "1-b"),
		"$KV." + n.bucket + ".writer", "$KV." + n.bucket + "." + cellKeys + "1-b", namesOf("other").dataSubject, n.inbox("1-b") + ".x",
		api + "STREAM.CREATE.more", api + "STREAM.UPDATE." + n.log, api + "STREAM.DELETE." + n.log, api + "STREAM.PURGE." + n.data, api + "STREAM.SNAPSHOT." + n.log,
		api + "STREAM.MSG.DELETE." + n.log, api + "STREAM.MSG.DELETE." + n.data, api + "STREAM.MSG.GET." + n.data, api + "DIRECT.GET." + n.data,
		api + "CONSUMER.CREATE." + n.data + ".x", api + "CONSUMER.CREATE." + n.turns + ".x", "$SYS.REQ.SERVER.PING",
	} {
		refuses("publish", subject, conn.Publish(subject, []byte("{}")))
	}
	for _, subject := range []string{">", n.cells + ".>", n.dataSubject, "_INBOX.>", n.inbox("1-b") + ".>", "$JS.>"} {
		_, err := conn.Subscribe(subject, func(*nats.Msg) {})
		refuses("subscription", subject, err)
	}
	must(t, b.Say([]byte("word")))
	if cell := <-heard; cell != "b" || len(heard) > 0 {
		t.Errorf("the writer hears %s, and %d words more", cell, len(heard))
	}
	if after := state(t, s); after != before {
		t.Errorf("the run's streams are %+v, and were %+v", after, before)
	}
}

// TestRightsAreDocumented: the page for operators lists what a cell of the name CELL may do in a run of the name RUN, in this
// order.
func TestRightsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/cell-servers.md")
	must(t, err)
	publish, subscribe := Rights("RUN", "CELL")
	var listed []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.HasPrefix(cells[1], " `") {
			listed = append(listed, strings.Trim(cells[1], " `"))
		}
	}
	if want := append(publish, subscribe...); !slices.Equal(listed, want) {
		t.Errorf("docs/cell-servers.md lists %q, want %q", listed, want)
	}
}

// state is what the streams of a run have.
func state(t *testing.T, s *Store) (all string) {
	t.Helper()
	streams := s.js.ListStreams(t.Context())
	for info := range streams.Info() {
		all += fmt.Sprintf("%s: messages %d to %d, %d consumers\n", info.Config.Name, info.State.FirstSeq, info.State.LastSeq, info.State.Consumers)
	}
	must(t, streams.Err())
	return all
}
