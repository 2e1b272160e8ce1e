"""The TensorFlow backend: the only place that imports TensorFlow and Keras."""
