-- Reports what wrk measured as one line of JSON. With the name of a file behind "--", requests
-- go round its lines, "TOKEN PATH" each.

local requests, at = {}, 0

function init(args)
	if not args[1] then
		return
	end
	for line in io.lines(args[1]) do
		local token, path = line:match("^(%S+) (%S+)$")
		requests[#requests + 1] = wrk.format("GET", path, { Authorization = "Bearer " .. token })
	end
	request = function()
		at = at % #requests + 1
		return requests[at]
	end
end

function done(summary, latency)
	local e = summary.errors
	io.write(string.format(
		'\n{"requests":%d,"us":%d,"errors":%d,"p50":%d,"p99":%d}\n',
		summary.requests, summary.duration,
		e.connect + e.read + e.write + e.status + e.timeout,
		latency:percentile(50), latency:percentile(99)))
end
