// Package api is the HTTP side of a control plane: authentication, limits, errors,
// and one handler per path of the API over the ports of this package. What a request
// means is decided behind the ports; nothing here touches the loop.
package api
