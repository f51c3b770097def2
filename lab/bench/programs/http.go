// A web server and its clients in one process: each client is a goroutine that asks over a connection of its own and
// waits for the answer. Prints requests per second of all clients.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func ask(url string, done *int64) {
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	for {
		response, err := client.Get(url)
		if err != nil {
			fail(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			fail(err)
		}
		response.Body.Close()
		atomic.AddInt64(done, 1)
	}
}

func main() {
	clients, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	body := strings.Repeat("x", 100)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, body)
	}))
	var done int64
	for i := 0; i < clients; i++ {
		go ask("http://"+listener.Addr().String(), &done)
	}
	before, since := int64(0), time.Now()
	for {
		time.Sleep(time.Second)
		sum, now := atomic.LoadInt64(&done), time.Now()
		fmt.Printf("rate: %.1f\n", float64(sum-before)/now.Sub(since).Seconds())
		before, since = sum, now
	}
}
