# syntax=docker/dockerfile:1
FROM golang:1.26-alpine AS build
RUN apk add --no-cache ca-certificates
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /holdfast ./cmd/holdfast
RUN echo 'holdfast:x:65532:65532::/:/sbin/nologin' > /passwd

# Nothing but the binary, the authorities it trusts and the user it runs as.
FROM scratch
COPY --from=build /passwd /etc/passwd
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /holdfast /holdfast
USER 65532:65532
# 8080 is the API. 9090 is the admin listener; it binds to loopback unless HOLDFAST_ADMIN_ADDR says otherwise.
EXPOSE 8080 9090
# Asks the admin listener for /readyz.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --start-interval=500ms --retries=3 CMD ["/holdfast", "health"]
ENTRYPOINT ["/holdfast"]
CMD ["serve"]
