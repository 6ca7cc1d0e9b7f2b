package api

import "net/http"

// Route is a path of the API and who may ask for it.
type Route struct {
	// Pattern is as http.ServeMux reads it: a method, where it is for one alone, and a path.
	Pattern string
	// Roles may ask for it; 0 is everybody, without a token.
	Roles Role
}

// handle adds a path. Every path of the server is added here.
func (s *Server) handle(pattern string, roles Role, h http.HandlerFunc) {
	s.routes = append(s.routes, Route{pattern, roles})
	s.mux.HandleFunc(pattern, h)
}
