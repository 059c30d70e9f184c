"""`spark.readStream.format("yt")`: YTsaurus queues as a streaming source."""
