package api

// meetingRoutes has the paths of this file.
func (s *Server) meetingRoutes() {}
