"""What a loop waits for on partitions: the waiters of requests that Python answers. Made, armed and read by one thread;
partitions wake it from any."""
