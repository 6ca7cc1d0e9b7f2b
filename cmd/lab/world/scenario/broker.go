package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

const (
	brokerPort, routePort = 4222, 6222
	// logStream is the stream in which planes keep the log.
	logStream = "headway_" + runName + "_log"
	// scribed is the file in which the scribe writes the log down.
	scribed = "scribe.ndjson"
	// scribeWait is how long the scribe waits before it asks again, unless a broker has written to the log.
	scribeWait = 100 * time.Millisecond
)

// brokers are the hosts of the broker, or of the servers of its cluster.
func (w *World) brokers() []*actor {
	var found []*actor
	for _, a := range w.order {
		if roleOf(a.name) == "broker" {
			found = append(found, a)
		}
	}
	return found
}

// brokerURL is the address of the broker, or those of all servers of its cluster.
func (w *World) brokerURL() string {
	var urls []string
	for _, a := range w.brokers() {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", a.host.IP, brokerPort))
	}
	return strings.Join(urls, ",")
}

func (w *World) serveBroker(h *machine.Host) error {
	options := &server.Options{
		ServerName: h.Name, Host: "0.0.0.0", Port: brokerPort, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: h.Name, SyncAlways: w.plan.Durable, MaxPayload: 8 << 20, MaxPending: 64 << 20,
		JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 64 << 20,
	}
	if all := w.brokers(); len(all) > 1 {
		options.Host = h.IP
		options.Cluster = server.ClusterOpts{Name: "brokers", Host: h.IP, Port: routePort}
		for _, a := range all {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("%s:%d", a.host.IP, routePort)})
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the broker has ended")
}

// serveScribe writes down the log of planes that keep no trace, as the broker has it. Planes remove lines that two
// snapshots cover: the scribe is back sooner than they have written two.
func (w *World) serveScribe(*machine.Host) error {
	f, err := os.Create(scribed)
	if err != nil {
		return err
	}
	connection, err := nats.Connect(w.brokerURL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(scribeWait/4), nats.ReconnectJitter(0, 0))
	if err != nil {
		return err
	}
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	log, err := streamOf(js)
	for err != nil { // there is none yet, or no broker
		time.Sleep(scribeWait)
		log, err = streamOf(js)
	}
	for next := uint64(1); ; next++ {
		text, err := logged(log, next)
		for err != nil {
			select {
			case <-w.logged:
				time.Sleep(time.Millisecond)
			case <-time.After(scribeWait):
			}
			text, err = logged(log, next)
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
}

// wake has the scribe connect anew to a broker that begins: one that lost its power told nobody.
func (w *World) wake(a *actor) {
	if scribe := w.actors["scribe"]; scribe != nil && roleOf(a.name) == "broker" {
		w.machine.Reset(a.host.IP, scribe.host.IP)
	}
}

// streamOf is the stream of the log.
func streamOf(js jetstream.JetStream) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return js.Stream(ctx, logStream)
}

// logged is a message of the log.
func logged(log jetstream.Stream, seq uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*scribeWait)
	defer cancel()
	m, err := log.GetMsg(ctx, seq)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}
