package httpapi

import (
	"net/http"
	"time"
)

// Server is an HTTP server for handler on addr, with a limit on everything a client could make last. The
// caller starts it and shuts it down.
func Server(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // 256 KiB at 17 KiB/s
		WriteTimeout:      time.Minute,      // from the headers read; a profile of 30 s fits
		IdleTimeout:       2 * time.Minute,
		// Headers above the limits the API tells about, but below this, get a problem document; above it, net/http's bare 431.
		MaxHeaderBytes: 4 * maxHeaderBytes,
	}
}
