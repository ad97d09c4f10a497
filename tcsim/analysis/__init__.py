"""What results are judged by: exact products, error metrics, inputs."""
