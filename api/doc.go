// Package api is the HTTP side of a control plane. It has authentication, limits, errors, and one
// handler per path of the API over the ports of this package. The ports decide the meaning of a
// request; nothing here touches the loop.
package api
