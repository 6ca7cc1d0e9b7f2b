package transfer

import (
	"fmt"
	"time"
)

// Shape is how copies of a version spread from its origin.
type Shape string

// Shapes.
const (
	// Chain: every receiver passes on to one other. The origin sends one copy, and pipelined by chunk
	// it takes hardly longer than that: the choice where links are the limit.
	Chain Shape = "chain"
	// Tree: every receiver passes on to two others. Half the speed of a chain on links that are the
	// limit, but only log₂ N hops: the choice where latency is.
	Tree Shape = "tree"
	// Star: the origin sends every copy itself.
	Star Shape = "star"
)

// Origin is the parent of a receiver that fetches from where the version was published.
const Origin = -1

// Parents returns whom each of n receivers fetches from: an index below its own, or Origin.
func Parents(shape Shape, n int) ([]int, error) {
	parents := make([]int, n)
	for i := range parents {
		switch shape {
		case Chain:
			parents[i] = i - 1
		case Tree:
			parents[i] = (i - 1) / 2
			if i == 0 {
				parents[i] = Origin
			}
		case Star:
			parents[i] = Origin
		default:
			return nil, fmt.Errorf("transfer: the shape is %q, want %s, %s or %s", shape, Chain, Tree, Star)
		}
	}
	return parents, nil
}

// Links describes what a version travels over.
type Links struct {
	// BytesPerS that a node sends, and as many that it receives at the same time; above 0.
	BytesPerS float64
	// Latency of one message between two nodes.
	Latency time.Duration
}

// Estimate is the time until the last of n receivers holds a version of so many bytes:
// bytes/bandwidth for each copy that the busiest node sends, and a chunk and a message for
// every hop. It is the model of a pipelined fan-out, bytes/bw + depth·(chunk/bw + latency).
func Estimate(shape Shape, n int, bytes int64, links Links) time.Duration {
	if n == 0 {
		return 0
	}
	copies, depth := 1.0, n
	switch shape {
	case Tree:
		copies, depth = min(2, float64(n)), 0
		if n <= 2 {
			copies = 1
		}
		for i := n - 1; i > 0; i = (i - 1) / 2 {
			depth++
		}
		depth++
	case Star:
		copies, depth = float64(n), 1
	}
	chunk := float64(min(bytes, ChunkBytes)) / links.BytesPerS
	seconds := copies*float64(bytes)/links.BytesPerS + float64(depth)*(chunk+links.Latency.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// Choose returns the shape with the least Estimate.
func Choose(n int, bytes int64, links Links) Shape {
	best := Chain
	for _, shape := range []Shape{Tree, Star} {
		if Estimate(shape, n, bytes, links) < Estimate(best, n, bytes, links) {
			best = shape
		}
	}
	return best
}
